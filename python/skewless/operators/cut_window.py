"""The plan of a window with cut keys: Spark's own window over (key, range), and what comes from other ranges.

Rows of a hot key have the slot of their range, all others slot 0, so one exchange and one window operator
serve all keys. What comes to a range is computed from the same rows, in partial aggregates, and broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType

from skewless.operators import catalyst
from skewless.operators.window_functions import Function, came, sent, whole
from skewless.operators.window_ranges import KEY_HASH, Order, slot_of

SLOT = "__skewless_slot"


@dataclass(frozen=True)
class Windows:
    """What was asked for. `rows` are those of `df`, and beside its columns keys, order values and the values
    of lag and lead wherever something is computed for them."""

    df: DataFrame
    rows: DataFrame
    keys: tuple[Column, ...]
    order: tuple[Order, ...]
    functions: tuple[Function, ...]
    frame: str

    @property
    def values(self) -> list[Column]:
        return [function.value for function in self.functions if function.value is not None]

    def plain(self) -> DataFrame:
        spec = Window.partitionBy(*self.keys).orderBy(*(one.sorts() for one in self.order))
        made = [_over(function, spec, self.frame).alias(function.name) for function in self.functions]
        return self.rows.select(*catalyst.output_columns(self.df), *made)

    def types(self, plain: DataFrame) -> list[DataType]:
        return [plain.schema[function.name].dataType for function in self.functions]


def cut_window(
    asked: Windows, types: Sequence[DataType], cut: DataFrame, most: int, partitions: int | None
) -> DataFrame:
    """What was asked for, with the keys of `cut` in ranges, of which a key has at most `most`."""
    key_hash = catalyst.key_hash(asked.df.sparkSession, list(asked.keys))
    dealt = asked.rows.join(F.broadcast(cut), key_hash == cut[KEY_HASH], "left")
    kept = catalyst.output_columns(asked.rows)
    dealt = dealt.select(*kept, slot_of(asked.order, most).alias(SLOT))
    carried = F.broadcast(_carries(asked, types, dealt))
    # named, since an input that is partitioned by the keys already would do for the window
    by_slot = (*asked.keys, F.col(SLOT))
    apart = dealt.repartition(*by_slot) if partitions is None else dealt.repartition(partitions, *by_slot)
    local = _local(asked, apart)
    same = [key.eqNullSafe(carried[f"__skewless_of_{i}"]) for i, key in enumerate(asked.keys)]
    joined = local.join(
        carried, reduce(Column.__and__, same, F.col(SLOT) == carried["__skewless_in"]), "left"
    )
    around = F.col("__skewless_rows_before"), F.col("__skewless_rows_after")
    made = [
        whole(function, F.col(f"__skewless_own_{i}"), F.col(f"__skewless_came_{i}"), of_type, around).alias(
            function.name
        )
        for i, (function, of_type) in enumerate(zip(asked.functions, types, strict=True))
    ]
    return joined.select(*catalyst.output_columns(asked.df), *made)


def _carries(asked: Windows, types: Sequence[DataType], dealt: DataFrame) -> DataFrame:
    """What comes to each range of each hot key, from a first pass over the rows of hot keys."""
    totals = (
        dealt.where(F.col(SLOT) > 0)
        .groupBy(
            *(key.alias(f"__skewless_of_{i}") for i, key in enumerate(asked.keys)),
            F.col(SLOT).alias("__skewless_in"),
        )
        .agg(
            *(
                sent(f, asked.order, asked.values).alias(f"__skewless_sent_{i}")
                for i, f in enumerate(asked.functions)
            )
        )
    )
    keys = [F.col(f"__skewless_of_{i}") for i in range(len(asked.keys))]
    of_key, up_to_here = Window.partitionBy(*keys), (Window.unboundedPreceding, -1)
    before = of_key.orderBy(F.col("__skewless_in").asc()).rowsBetween(*up_to_here)
    after = of_key.orderBy(F.col("__skewless_in").desc()).rowsBetween(*up_to_here)
    carries = [
        came(function, F.col(f"__skewless_sent_{i}"), of_type, before, after).alias(f"__skewless_came_{i}")
        for i, (function, of_type) in enumerate(zip(asked.functions, types, strict=True))
    ]
    return totals.select(*keys, "__skewless_in", *carries)


def _local(asked: Windows, dealt: DataFrame) -> DataFrame:
    """Spark's own window over each range, and over each key that is not cut. With lag or lead, rows with
    equal order values are put in order by the values that these give, as the first pass does."""
    of_range = Window.partitionBy(*asked.keys, F.col(SLOT))
    sorts = [one.sorts() for one in asked.order]
    falls = asked.order[0].descending
    ties = [value.desc_nulls_last() if falls else value.asc_nulls_first() for value in asked.values]
    spec, by_rows = of_range.orderBy(*sorts), of_range.orderBy(*sorts, *ties)
    own = [
        _over(function, by_rows if function.by_rows else spec, asked.frame).alias(f"__skewless_own_{i}")
        for i, function in enumerate(asked.functions)
    ]
    if asked.values:
        row = F.row_number().over(by_rows)
        rows = F.count(F.lit(1)).over(
            by_rows.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        )
        own += [(row - 1).alias("__skewless_rows_before"), (rows - row).alias("__skewless_rows_after")]
    return dealt.select("*", *own)


def _over(function: Function, spec: WindowSpec, frame: str) -> Column:
    if frame == "rows" and function.kind in ("count", "sum", "min", "max"):
        spec = spec.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return function.column.over(spec)
