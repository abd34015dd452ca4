"""`skewless.plan` against a count by hand, and the likely mistakes that need a real session."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from skewless.errors import CheckpointError, ColumnError, PolicyError, SessionError, SettingError
from skewless.model.snapshot import imbalance_of
from skewless.operators import plan as module

N = 8


def rows(spark: SparkSession) -> DataFrame:
    """Three keys with 1,000 rows each that hash to one partition, and 200 with ten each."""
    names = spark.range(1000).selectExpr("concat('hot', id) as k")
    homes = F.pmod(skewless.key_hash("k", spark=spark).cast("long"), F.lit(N))
    hot = [row.k for row in names.filter(homes == 3).orderBy("k").limit(3).collect()]
    heavy = spark.range(3000).select(F.array(*map(F.lit, hot))[(F.col("id") % 3).cast("int")].alias("k"))
    return heavy.union(spark.range(2000).selectExpr("concat('cold', id % 200) as k"))


def loads(df: DataFrame) -> np.ndarray:
    counted = {row.p: row["count"] for row in df.groupBy(F.spark_partition_id().alias("p")).count().collect()}
    return np.array([float(counted.get(p, 0)) for p in range(N)])


def test_the_table_levels_the_frame_that_it_was_made_from(spark: SparkSession) -> None:
    df = rows(spark)
    table = skewless.plan(df, N, "k", max_imbalance=0.7)
    plain, level = loads(df.repartition(N, "k")), loads(skewless.repartition(df, N, "k", table=table))
    assert plain.sum() == level.sum() == 5000
    assert imbalance_of(plain) > 3
    assert imbalance_of(level) <= 0.7
    assert table == skewless.plan(df, N, "k", max_imbalance=0.7)


def test_keys_that_are_not_tracked_stay_and_count_where_they_are(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = rows(spark)
    monkeypatch.setattr(module, "TRACKED_KEYS", 3)
    seen = []

    def spy(snapshot, table, limits):  # type: ignore[no-untyped-def]
        seen.append(snapshot)
        return skewless.policies.get("mixed")(snapshot, table, limits)

    table = skewless.plan(df, N, "k", policy=spy)
    [snapshot] = seen
    assert snapshot.costs.tolist() == [1000, 1000, 1000]
    assert snapshot.loads.tolist() == loads(df.repartition(N, "k")).tolist()
    assert set(table.move_hashes.tolist()) <= set(snapshot.key_hashes.tolist())


def test_several_columns_and_nulls_are_hashed_as_spark_hashes_them(spark: SparkSession) -> None:
    df = spark.range(4000).selectExpr("if(id % 2 = 0, null, 'a') as k", "id % 3 as l")
    table = skewless.plan(df, N, "k", F.col("l"), max_imbalance=0)
    routed = skewless.repartition(df, N, "k", "l", table=table)
    assert imbalance_of(loads(routed)) <= imbalance_of(loads(df.repartition(N, "k", "l")))
    assert (loads(routed) > 0).sum() == 6  # six keys, each in a partition of its own


def test_an_empty_frame_needs_no_table(spark: SparkSession) -> None:
    assert skewless.plan(spark.range(0), N, "id") == skewless.Table(N)


def test_likely_mistakes_are_told(spark: SparkSession) -> None:
    df = spark.range(5)
    for partitions in (0, "8", 2.0, None, True):
        with pytest.raises(SettingError, match="partitions is"):
            skewless.plan(df, partitions, "id")  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match="the key cannot be read"):
        skewless.plan(df, N, "no_such")
    with pytest.raises(ColumnError, match="no key column"):
        skewless.plan(df, N)
    with pytest.raises(PolicyError, match="no policy 'magic'"):
        skewless.plan(df, N, "id", policy="magic")
    with pytest.raises(SettingError, match="takes a DataFrame"):
        skewless.plan(None, N, "id")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="is a stream"):
        skewless.plan(spark.readStream.format("rate").load(), N, "value")
    with pytest.raises(SessionError, match="a session that runs already"):
        skewless.configure(spark)  # type: ignore[arg-type]


def test_a_partitioner_for_another_number_fails_the_job_by_name(spark: SparkSession) -> None:
    pairs = spark.sparkContext.parallelize([(i, i) for i in range(40)], 2)
    partitioner = skewless.RoutedPartitioner(skewless.Table(N, {7: 1}))
    assert len(pairs.partitionBy(N, partitioner).glom().collect()) == N
    with pytest.raises(Exception, match="the table is for 8 partitions and partitionBy was given 4"):
        pairs.partitionBy(4, partitioner).collect()


def test_a_checkpoint_that_cannot_be_written_is_told(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    writer = skewless.repartition(stream, N, "value").writeStream.format("noop").queryName("blocked")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        (tmp_path / "c" / "_skewless").write_text("a file in the place of the folder")
        with pytest.raises(CheckpointError, match=r"under the checkpoint of query blocked: .*right to write"):
            skewless.balance(spark, policy=None).publish(query, skewless.Table(N, {7: 1}))
    finally:
        query.stop()


def test_after_stop_another_loop_watches_the_same_session(spark: SparkSession) -> None:
    first = skewless.balance(spark)
    with pytest.raises(SettingError, match="balanced already"):
        skewless.balance(spark)
    first.stop()
    with skewless.balance(spark) as second:
        assert "the loop is running" in repr(second)
    assert "the loop is over: stopped" in repr(first)
