"""Heavy hitters: the frequent values of a column in bounded memory, by Space-Saving in its mergeable form.

Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data streams", ICDT
2005; the merge is that of Agarwal et al., "Mergeable summaries", PODS 2012, section 3, who show that
Space-Saving with c + 1 counters and Misra-Gries with c tell the same. Kept here are Misra-Gries's counters,
since they merge by addition: counters of one value are added, then the largest one that finds no room is
taken off all and written down in `missed`. Each such step takes it off c + 1 counters at least, so with N
rows missed <= N / (c + 1), and a value's count is between its counter and its counter + missed.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from skewless.errors import SettingError
from skewless.operators.aggregates.aggregate import Aggregate
from skewless.operators.aggregates.schemas import struct_of, to_arrow


def space_saving(item: str, capacity: int, type: DataType | str = "string") -> Aggregate:
    """The values of column `item`, of this type, with more than rows / (capacity + 1) rows, and some others.

    A row per value: `item`, and `at_least` and `at_most`, between which its number of rows is. Nulls do not
    count.
    """
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise SettingError(f"capacity is {capacity!r}; it takes a whole number of at least 1.")
    kind = struct_of(f"item {type}", "type").fields[0].dataType if isinstance(type, str) else type
    schema = StructType(
        [
            StructField("items", ArrayType(kind)),
            StructField("counters", ArrayType(LongType())),
            StructField("missed", LongType()),
        ]
    )
    arrow = to_arrow(schema)

    def partial(rows: pa.Table) -> pa.Table:
        values = rows[item].drop_null()
        counted = pa.table({"item": values, "n": pa.repeat(1, len(values))})
        return summary(counted, 0)

    def merge(partials: pa.Table) -> pa.Table:
        columns = {
            "item": pc.list_flatten(partials["items"]),
            "n": pc.list_flatten(partials["counters"]),
        }
        return summary(pa.table(columns), pc.sum(partials["missed"]).as_py())

    def summary(counted: pa.Table, missed: int) -> pa.Table:
        together = counted.group_by("item").aggregate([("n", "sum")])
        ordered = together.take(pc.sort_indices(together, [("n_sum", "descending"), ("item", "ascending")]))
        items, counters = ordered["item"].combine_chunks(), ordered["n_sum"].combine_chunks()
        if len(items) > capacity:
            off = counters[capacity].as_py()
            missed += off
            kept = pc.greater(counters[:capacity], off)
            items = items[:capacity].filter(kept)
            counters = pc.subtract(counters[:capacity].filter(kept), off)
        one_row = [[items.to_pylist()], [counters.to_pylist()], [missed]]
        return pa.Table.from_arrays(
            [pa.array(values, field.type) for values, field in zip(one_row, arrow, strict=True)],
            schema=arrow,
        )

    def result(partial: pa.Table) -> pa.Table:
        counters = pc.list_flatten(partial["counters"])
        most = pc.add(counters, partial["missed"][0])
        return pa.table({"item": pc.list_flatten(partial["items"]), "at_least": counters, "at_most": most})

    return Aggregate(
        partial,
        merge,
        schema,
        result,
        StructType(
            [
                StructField("item", kind),
                StructField("at_least", LongType()),
                StructField("at_most", LongType()),
            ]
        ),
    )
