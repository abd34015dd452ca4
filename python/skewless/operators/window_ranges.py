"""Ranges of the order columns, over which the rows of a hot key are dealt: where they end, and which of them
a row is in.

A range ends at a *bound*, a row of order values from a sample. A row is in the range whose number is the
number of bounds before it, so rows with equal order values share a range whatever the bounds are. Results
hang on no bound, the balance does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from skewless.operators import catalyst
from skewless.operators.hot_keys import SEED, sample_share
from skewless.operators.split_join import looked_up

KEY_HASH = "__skewless_key_hash"
SLOTS = "__skewless_slots"
BOUNDS = "__skewless_bounds"


@dataclass(frozen=True)
class Order:
    """One column of an order. Spark's default: nulls first if it rises, last if it falls."""

    column: Column
    descending: bool
    nulls_last: bool

    def sorts(self) -> Column:
        if self.descending:
            return self.column.desc_nulls_last() if self.nulls_last else self.column.desc_nulls_first()
        return self.column.asc_nulls_last() if self.nulls_last else self.column.asc_nulls_first()

    def puts_before(self, one: Column, other: Column) -> Column:
        """Whether `one` comes before `other`; neither if they are equal or both null."""
        by_value = one > other if self.descending else one < other
        if self.nulls_last:
            return F.when(one.isNull(), F.lit(False)).when(other.isNull(), F.lit(True)).otherwise(by_value)
        return F.when(other.isNull(), F.lit(False)).when(one.isNull(), F.lit(True)).otherwise(by_value)


def bounds(
    df: DataFrame,
    keys: Sequence[Column],
    order: Sequence[Order],
    slots: Mapping[int, Sequence[int]],
    sample: float | None,
) -> DataFrame:
    """A row per hot key, computed now: its hash, its slots, and one bound less than slots, in order. Keys
    that cannot be cut, because all their rows have the same order values, have no row."""
    share = sample_share(df, sample)
    rows = (df if share == 1 else df.sample(share, SEED)).select(
        catalyst.key_hash(df.sparkSession, list(keys)).alias(KEY_HASH),
        F.struct(*(one.column.alias(f"o{i}") for i, one in enumerate(order))).alias("bound"),
    )
    rows = rows.withColumn(SLOTS, looked_up(F.col(KEY_HASH), slots)).where(F.col(SLOTS).isNotNull())
    inside = [Order(F.col(f"bound.o{i}"), o.descending, o.nulls_last).sorts() for i, o in enumerate(order)]
    of_key = Window.partitionBy(KEY_HASH)
    placed = rows.select(
        "*",
        F.row_number().over(of_key.orderBy(*inside)).cast("long").alias("place"),  # it is multiplied
        F.count("*").over(of_key).alias("rows"),
    )
    part = "floor(({}) * size(" + SLOTS + ") / rows)"
    last_of_part = F.expr(f"{part.format('place')} > {part.format('place - 1')} and place < rows")
    cut = (
        placed.where(last_of_part)
        .groupBy(KEY_HASH, SLOTS)
        .agg(F.array_sort(F.collect_list(F.struct("place", "bound"))).alias("cuts"))
    )
    different = F.array_distinct(F.transform("cuts", lambda one: one["bound"]))
    return catalyst.held(cut.select(KEY_HASH, SLOTS, different.alias(BOUNDS)))


def slot_of(order: Sequence[Order], most: int) -> Column:
    """The slot of a row beside the bounds of its key, of which there are at most `most`; 0 without bounds.

    By halving: the steps 4, 2, 1 find a row's place among 7 bounds.
    """

    def further(place: Column, step: Column) -> Column:
        bound = F.get(F.col(BOUNDS), place + step - 1)
        fits = (place + step <= F.size(BOUNDS)) & _before(order, bound)
        return F.when(fits, place + step).otherwise(place)

    steps = F.array(*(F.lit(1 << bit) for bit in reversed(range(max(1, most.bit_length())))))
    number = F.aggregate(steps, F.lit(0), further)
    return F.when(
        F.col(BOUNDS).isNotNull(), F.get(F.col(SLOTS), F.least(number, F.size(SLOTS) - 1))
    ).otherwise(F.lit(0))


def _before(order: Sequence[Order], bound: Column) -> Column:
    """Whether a bound comes before the row: by the first column in which they differ."""
    before = F.lit(False)
    for i, one in reversed(list(enumerate(order))):
        value = bound[f"o{i}"]
        before = F.when(value.eqNullSafe(one.column), before).otherwise(one.puts_before(value, one.column))
    return before
