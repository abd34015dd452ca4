"""The number of rows and the sums of columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from skewless.errors import SettingError
from skewless.operators.aggregates.aggregate import Aggregate

_TYPES = {"long": pa.int64(), "double": pa.float64()}


def totals(*columns: str, type: str = "long") -> Aggregate:
    """`rows`, and `sum_<column>` of each column; null where all values are.

    Sums of `long` are exact, and one beyond 64 bits is an error. Sums of `double` depend, in the last digits,
    on how the rows were dealt out, as in Spark.

    >>> import pyarrow as pa
    >>> made = totals("v")
    >>> made.merge(pa.concat_tables([made.partial(pa.table({"v": [1, None]}))] * 2)).to_pylist()
    [{'rows': 4, 'sum_v': 2}]
    """
    if type not in _TYPES:
        raise SettingError(f"type is {type!r}; sums are of type 'long' or 'double'.")
    kind = _TYPES[type]

    def added(column: pa.ChunkedArray) -> pa.Array:
        wide = column if type == "double" else column.cast(pa.decimal128(38, 0))  # int64 would wrap around
        return pa.array([pc.sum(wide)]).cast(kind)

    def partial(rows: pa.Table) -> pa.Table:
        sums = {f"sum_{name}": added(rows[name]) for name in columns}
        return pa.table({"rows": pa.array([rows.num_rows]), **sums})

    def merge(partials: pa.Table) -> pa.Table:
        sums = {f"sum_{name}": added(partials[f"sum_{name}"]) for name in columns}
        return pa.table({"rows": pa.array([pc.sum(partials["rows"])]), **sums})

    schema = ", ".join(["rows long", *(f"`sum_{name}` {type}" for name in columns)])
    return Aggregate(partial, merge, schema)
