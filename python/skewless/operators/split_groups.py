"""Which keys of a grouping are dealt over several slots: `plan_splits` for one side that has no other.

A group is a join's side that nothing is copied for, so sample, slots and widths are the join's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skewless.operators import catalyst
from skewless.operators.catalyst import KeyPair, LogicalJoin
from skewless.operators.hot_keys import sketch
from skewless.operators.plan_splits import Splits, plan_splits
from skewless.operators.split_join import content_hash, looked_up


def split_groups(
    df: DataFrame,
    keys: Sequence[Column],
    partitions: int,
    sample: float | None,
    hot: Sequence[Any] | None,
    dealt_by: Column | None = None,
) -> Splits:
    """The hot keys of `df`, each with slots that lie in different partitions; `dealt_by` tells rows apart
    that may go to different slots."""
    side = LogicalJoin(
        how="INNER",
        left=df,
        right=df.where(F.lit(False)),
        keys=tuple(KeyPair(key, key, null_safe=True) for key in keys),
        condition=F.lit(True),
        output=(),
        repeatable=True,
        root=None,
    )
    counted = sketch(side, (turn(df) if dealt_by is None else dealt_by, None), partitions, sample, hot)
    planned = plan_splits(counted, ("left",), partitions, 0.0, pairs=False, given=hot is not None)
    return replace(planned, why_not=tuple(why.replace(" on the left", "") for why in planned.why_not))


def slot(df: DataFrame, keys: Sequence[Column], slots: Mapping[int, Sequence[int]]) -> Column:
    """The slot of a row: 0 where its key is not split."""
    found = looked_up(catalyst.key_hash(df.sparkSession, list(keys)), slots)
    return F.coalesce(F.get(found, F.pmod(turn(df), F.size(found)).cast("int")), F.lit(0))


def turn(df: DataFrame) -> Column:
    """What deals out a row, and nothing that an attempt could change: its mapper, and its content where that
    is the same in every attempt. With the content alone, rows that are all alike would stay together."""
    content = content_hash(df, None) if catalyst.same_content(df) else None
    return F.xxhash64(F.spark_partition_id(), F.lit(0) if content is None else content)
