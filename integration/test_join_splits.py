"""A key of a join split over real executors, one of which is killed in a batch that grows the split.

`JoinSplitSuite` and `JoinSplitFaultSuite` try all join types and state formats in one process. The input
holds user code, so that mappers take turns; only checkpoint format 2 allows that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from integration import state_run
from integration.state_run import N, Run
from integration.test_state_faults import kill_paused, pause_once

CONF = state_run.CONF
HOT = "k0"


def joined(df: DataFrame, key: Callable[[Column], Column] = lambda key: key) -> DataFrame:
    """Left outer, on a sparse condition: most rows of the hot key find no partner."""
    hot = F.when(F.col("v") % 5 < 2, HOT).otherwise(F.col("k"))  # two fifths of the rows
    timed = df.withColumn("k", key(hot)).withWatermark("t", "20 seconds")
    left = timed.where("v % 2 = 0").selectExpr("k", "v as lv", "t as lt")
    right = timed.where("v % 2 = 1").selectExpr("k as rk", "v as rv", "t as rt")
    matches = "k = rk AND (lv * 7 + rv) % 11 = 0 AND rt BETWEEN lt AND lt + INTERVAL 25 seconds"
    return left.join(right, F.expr(matches), "left_outer")


def test_an_executor_killed_while_a_split_grows_costs_nothing(
    spark: SparkSession,
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    marks: Path,
) -> None:
    folder = str(marks)

    @F.udf("string", useArrow=False)
    def passing(key: str | None) -> str | None:
        pause_once(folder)
        return key

    hot = spark.createDataFrame([(HOT,)], "k string").select(skewless.key_hash("k")).first()
    assert hot is not None
    split = run(lambda df: joined(df, passing), mode="append", checkpoint_format=2).start()
    split.feed(0)
    first = balancer.publish(split.query, skewless.Table(N, {hot[0]: skewless.Split.left(0, 1)}))
    split.feed(1)
    grown = balancer.publish(split.query, skewless.Table(N, {hot[0]: skewless.Split.left(3, 1, 0, 2)}))
    (marks / "armed").touch()
    split.add(2)
    kill_paused(split, marks)
    split.feed(3)
    back = balancer.publish(split.query, skewless.Table(N))
    split.feed(4, 5)
    split.assert_moved(first, grown, back)
    expected = plain(joined, mode="append").rows
    assert any(row[3] is None for rows in expected.values() for row in rows if row[0] == HOT)
    assert split.rows == expected
