"""How many rows each heavy key has on both sides of a join, from a sample of its rows: what `plan_splits`
decides on. The one place where a join looks at its rows before it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skewless.errors import SettingError
from skewless.operators import catalyst
from skewless.operators.catalyst import LogicalJoin

SAMPLE_ROWS = 200_000
SMALLEST_SAMPLE = 0.01
MOST_KEYS = 128
FEWEST_SEEN = 8
SEED = 7


@dataclass(frozen=True)
class SideRows:
    """What one side has of one key. `kinds` is how many different rows the sample showed, None if so many
    that it tells no bound; `at_most` is what `rows` hardly exceeds, three standard errors up."""

    rows: float
    at_most: float
    kinds: int | None = None


@dataclass(frozen=True)
class KeyRows:
    """One key of a join. A key that cannot match, because it holds a null, is never copied. `partitions[i]`
    is where Spark's hash puts (key, slot i + 1)."""

    key_hash: int
    name: str
    left: SideRows
    right: SideRows
    can_match: bool
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Sketch:
    """The sides' rows and the pairs that match, all estimated from the sample, and the heaviest keys."""

    left_rows: float
    right_rows: float
    pairs: float
    keys: tuple[KeyRows, ...]


def sketch(
    join: LogicalJoin,
    contents: tuple[Column | None, Column | None],
    partitions: int,
    sample: float | None,
    hot: Sequence[Any] | None,
) -> Sketch:
    """Counts the keys of a sample of both sides. With `hot`, those keys are told of and no others."""
    shares = sample_share(join.left, sample), sample_share(join.right, sample)
    groups = _groups(join, contents, shares).persist()
    try:
        totals = groups.agg(
            F.sum("left"), F.sum("right"), F.sum(F.when(_can_match(join), F.col("left") * F.col("right")))
        ).collect()[0]
        wanted = _heaviest(groups, join, shares) if hot is None else _given(groups, hot, len(join.keys))
        found = _described(wanted, join, partitions).collect()
    finally:
        groups.unpersist()
    left, right, pairs = (float(total or 0) for total in totals)
    return Sketch(
        left / shares[0],
        right / shares[1],
        pairs / (shares[0] * shares[1]),
        tuple(_key_rows(row, shares) for row in found),
    )


def sample_share(df: DataFrame, wanted: float | None) -> float:
    """The share of a side's rows that is counted: what was asked for, else about `SAMPLE_ROWS` rows."""
    if wanted is not None:
        return wanted
    expected = max(1.0, catalyst.estimated_rows(df))
    return min(1.0, max(SMALLEST_SAMPLE, SAMPLE_ROWS / expected))


def _names(join: LogicalJoin) -> list[str]:
    return [f"k{i}" for i in range(len(join.keys))]


def _groups(
    join: LogicalJoin, contents: tuple[Column | None, Column | None], shares: tuple[float, float]
) -> DataFrame:
    """One row per key of the sample: its rows and its different rows on each side."""
    sides = []
    for number, df in enumerate((join.left, join.right)):
        keys = [
            (pair.left, pair.right)[number].alias(name)
            for pair, name in zip(join.keys, _names(join), strict=True)
        ]
        content = contents[number]
        rows = df if shares[number] == 1 else df.sample(shares[number], SEED)
        sides.append(
            rows.select(
                *keys, F.lit(number).alias("side"), (F.lit(0) if content is None else content).alias("c")
            )
        )
    is_left = F.col("side") == 0
    return (
        sides[0]
        .unionAll(sides[1])
        .groupBy(*_names(join))
        .agg(
            F.count_if(is_left).alias("left"),
            F.count_if(~is_left).alias("right"),
            F.approx_count_distinct(F.when(is_left, F.col("c"))).alias("left_kinds"),
            F.approx_count_distinct(F.when(~is_left, F.col("c"))).alias("right_kinds"),
        )
    )


def _can_match(join: LogicalJoin) -> Column:
    nulls = [
        F.col(name).isNull() for pair, name in zip(join.keys, _names(join), strict=True) if not pair.null_safe
    ]
    return ~reduce(Column.__or__, nulls, F.lit(False))


def _heaviest(groups: DataFrame, join: LogicalJoin, shares: tuple[float, float]) -> DataFrame:
    left, right = F.col("left") / shares[0], F.col("right") / shares[1]
    load = left + right + F.when(_can_match(join), left * right).otherwise(0)
    seen = groups.where(F.greatest("left", "right") >= FEWEST_SEEN)
    return seen.orderBy(load.desc(), *_names(join)).limit(MOST_KEYS)


def _given(groups: DataFrame, hot: Sequence[Any], width: int) -> DataFrame:
    types = [field.dataType for field in groups.schema.fields[:width]]
    rows = []
    for value in hot:
        values = value if isinstance(value, tuple) else (value,)
        if len(values) != width:
            raise SettingError(
                f"a hot key is {value!r}, and the join has {width} key columns. Give a value per column."
            )
        literals = [F.lit(one).cast(type_) for one, type_ in zip(values, types, strict=True)]
        rows.append(F.struct(*(one.alias(f"k{i}") for i, one in enumerate(literals))))
    spark = groups.sparkSession
    try:
        keys = spark.range(1).select(F.inline(F.array(*rows))).distinct()
        keys.collect()
    except PySparkException as error:
        raise SettingError(
            f"hot holds a value that is no key of this join: {error}. Give values of the key columns' types."
        ) from error
    same = [keys[f"k{i}"].eqNullSafe(groups[f"k{i}"]) for i in range(width)]
    counted = keys.join(groups, reduce(Column.__and__, same), "left")
    counts = [F.coalesce(groups[c], F.lit(0)).alias(c) for c in groups.columns[width:]]
    return counted.select(*(keys[f"k{i}"] for i in range(width)), *counts)


def _described(groups: DataFrame, join: LogicalJoin, partitions: int) -> DataFrame:
    keys = [F.col(name) for name in _names(join)]
    slots = F.sequence(F.lit(1), F.lit(candidates(partitions)))
    return groups.select(
        catalyst.key_hash(groups.sparkSession, keys).alias("key_hash"),
        F.to_json(F.struct(*keys), {"ignoreNullFields": "false"}).alias("name"),
        "left",
        "right",
        "left_kinds",
        "right_kinds",
        _can_match(join).alias("can_match"),
        F.transform(slots, lambda slot: F.pmod(F.hash(*keys, slot), F.lit(partitions))).alias("partitions"),
    )


def candidates(partitions: int) -> int:
    """So many slots that hashing them hardly ever misses a partition.

    >>> candidates(8), candidates(200)
    (81, 2660)
    """
    return math.ceil(partitions * (math.log(partitions) + 8))


def _key_rows(row: Any, shares: tuple[float, float]) -> KeyRows:
    left = side_rows(row["left"], row["left_kinds"], shares[0])
    right = side_rows(row["right"], row["right_kinds"], shares[1])
    return KeyRows(row["key_hash"], row["name"], left, right, row["can_match"], tuple(row["partitions"]))


def side_rows(seen: int, kinds: int, share: float) -> SideRows:
    """What so many sampled rows say of all rows.

    >>> side_rows(100, 97, 0.1)
    SideRows(rows=1000.0, at_most=1300.0, kinds=None)
    >>> side_rows(100, 3, 1.0)
    SideRows(rows=100.0, at_most=100.0, kinds=3)
    """
    at_most = seen if share == 1 else seen + 3 * max(1.0, math.sqrt(seen))
    return SideRows(seen / share, at_most / share, kinds if 2 * kinds < seen else None)
