"""The k rows of a key with the largest values of a column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from skewless.errors import SettingError
from skewless.operators.aggregates.aggregate import Aggregate
from skewless.operators.aggregates.schemas import struct_of


def top_k(by: str, k: int, schema: StructType | str) -> Aggregate:
    """The columns of `schema` of the `k` rows with the largest `by`, one of them, nulls last.

    Rows with equal `by` are taken in the order of the other columns, so that the result does not depend on
    how rows were dealt out.

    >>> import pyarrow as pa
    >>> from pyspark.sql.types import StructType
    >>> made = top_k("v", 2, StructType().add("v", "long").add("w", "string"))
    >>> made.partial(pa.table({"v": [1, 3, 3], "w": ["a", "c", "b"], "x": [0, 0, 0]})).to_pylist()
    [{'v': 3, 'w': 'b'}, {'v': 3, 'w': 'c'}]
    """
    names = struct_of(schema, "schema").names
    if by not in names:
        raise SettingError(f"by is {by!r}, and schema= has {names}; name one of its columns.")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise SettingError(f"k is {k!r}; it takes a whole number of at least 1.")
    order = [(by, "descending"), *((name, "ascending") for name in names if name != by)]

    def largest(rows: pa.Table) -> pa.Table:
        columns = rows.select(names)
        return columns.take(pc.sort_indices(columns, sort_keys=order)[:k])

    return Aggregate(largest, largest, schema)
