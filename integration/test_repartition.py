"""`skewless.repartition` and the RDD partitioners on real executors, against plain Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from skewless.errors import ColumnError, SettingError, TableError

N = 8


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, 4000, 1, 4).selectExpr("concat('k', id % 50) as k", "id as v", "map('a', id) as m")


def hashes(df: DataFrame) -> dict[str, int]:
    return {r.k: r.h for r in df.select("k", skewless.key_hash("k").alias("h")).distinct().collect()}


def placed(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, df.select("k", "v", F.spark_partition_id().alias("p")).collect()))


def test_without_a_table_every_row_goes_where_plain_spark_puts_it(spark: SparkSession) -> None:
    df = rows(spark)
    assert placed(skewless.repartition(df, N, "k")) == placed(df.repartition(N, "k"))
    assert placed(skewless.repartition(df, N, "k", table=skewless.Table(N))) == placed(df.repartition(N, "k"))


def test_with_a_full_table_every_row_goes_where_the_table_says(spark: SparkSession) -> None:
    df = rows(spark)
    target = {k: (i * 3) % N for i, k in enumerate(sorted(hashes(df)))}
    table = skewless.Table(N, {hashes(df)[k]: p for k, p in target.items()})
    assert {(k, p) for k, _, p in placed(skewless.repartition(df, N, "k", table=table))} == set(
        target.items()
    )


def test_a_table_too_large_for_the_task_reaches_the_executors_all_the_same(spark: SparkSession) -> None:
    df = rows(spark)
    hot = hashes(df)["k7"]
    entries = {h: 1 for h in range(1_000_000, 1_050_000) if h != hot} | {hot: 5}
    table = skewless.Table(N, entries)
    assert len(table.encode()) > 100_000
    assert {p for k, _, p in placed(skewless.repartition(df, N, "k", table=table)) if k == "k7"} == {5}


def test_a_split_spreads_a_key_and_a_group_by_after_it_stays_right(spark: SparkSession) -> None:
    df = rows(spark)
    table = skewless.Table(N, {hashes(df)["k7"]: (0, 3, 5), hashes(df)["k9"]: tuple(range(N))})
    routed = skewless.repartition(df, N, "k", table=table)
    assert {p for k, _, p in placed(routed) if k == "k7"} == {0, 3, 5}
    assert {p for k, _, p in placed(routed) if k == "k9"} == set(range(N))
    assert sorted(routed.groupBy("k").count().collect()) == sorted(df.groupBy("k").count().collect())
    assert sorted(routed.groupBy("k").count().collect())[0]["count"] == 80


def test_a_join_of_a_routed_and_a_plain_side_loses_no_row(spark: SparkSession) -> None:
    df = rows(spark)
    moved = skewless.Table(N, dict.fromkeys(hashes(df).values(), 0))
    routed = skewless.repartition(df, N, "k", table=moved)
    other = df.select("k", F.col("v").alias("w")).repartition(N, "k")
    for adaptive in ("true", "false"):
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        assert routed.join(other, "k").count() == df.join(other, "k").count() == 50 * 80 * 80
    spark.conf.set("spark.sql.adaptive.enabled", "true")


def test_the_python_rdd_partitioner_routes_by_the_table_and_else_as_pyspark(spark: SparkSession) -> None:
    pairs = spark.sparkContext.parallelize([(f"k{i % 20}", i) for i in range(400)], 3)
    plain = pairs.partitionBy(N).glom().map(sorted).collect()
    assert (
        pairs.partitionBy(N, skewless.RoutedPartitioner(skewless.Table(N))).glom().map(sorted).collect()
        == plain
    )
    key_hash = dict(pairs.keys().distinct().map(lambda key: (key, skewless.rdd_key_hash(key))).collect())[
        "k3"
    ]
    routed = skewless.RoutedPartitioner(skewless.Table(N, {key_hash: 6}))
    parts = pairs.partitionBy(N, routed)
    assert [i for i, part in enumerate(parts.glom().collect()) if any(k == "k3" for k, _ in part)] == [6]
    again = pairs.partitionBy(N, skewless.RoutedPartitioner(skewless.Table(N, {key_hash: 6})))
    assert parts.partitioner == again.partitioner
    assert sorted(parts.collect()) == sorted(pairs.collect())


def test_bad_arguments_are_refused_with_a_typed_error(spark: SparkSession) -> None:
    df = rows(spark)
    with pytest.raises(ColumnError, match="nope"):
        skewless.repartition(df, N, "nope")
    with pytest.raises(ColumnError, match="MAP"):
        skewless.repartition(df, N, "m")
    with pytest.raises(ColumnError, match="no key column"):
        skewless.repartition(df, N)
    with pytest.raises(TableError, match="4 partitions"):
        skewless.repartition(df, N, "k", table=skewless.Table(4))
    with pytest.raises(SettingError, match="whole number"):
        skewless.repartition(df, "8", "k")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="1 to"):
        skewless.repartition(df, 0, "k")


def test_the_listener_ties_rows_to_partitions(spark: SparkSession, balancer: skewless.Balancer) -> None:
    df = rows(spark)
    routed = skewless.repartition(df, N, "k", table=skewless.Table(N, {hashes(df)["k7"]: 2}))
    expected = [0] * N
    for _, _, p in placed(routed):
        expected[int(str(p))] += 1
    loads = balancer.loads()[-1]
    assert loads.rows.tolist() == expected
    assert (loads.bytes[loads.rows > 0] > 0).all()
    assert (loads.run_ms >= 0).all()


def test_advice_from_a_dataframe_names_the_hot_key_and_what_would_help(spark: SparkSession) -> None:
    df = spark.range(20_000).selectExpr("if(id % 4 = 0, 'hot', concat('k', id % 997)) as k", "id as v")
    advice = skewless.advise(df, "k", workers=8, operator="mergeable")
    assert advice.hot[0].name == "hot"
    assert abs(advice.hot[0].share - 0.25) < 1e-9
    assert "hot" in str(advice)
    with pytest.raises(ColumnError, match="nope"):
        skewless.advise(df, "nope", workers=8)
    with pytest.raises(SettingError):
        skewless.advise(df, "k", workers=0)
