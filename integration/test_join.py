"""`skewless.join` on real executors against `DataFrame.join`; `explain_skew` against what AQE then does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import skewless
from skewless.errors import ColumnError, JoinError, SettingError
from skewless.operators import catalyst
from skewless.operators.explain_skew import FORCE
from skewless.operators.split_join import PRESERVED, _Side, content_hash, turn

CONF = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]
# Odd inputs: what each type adds is covered by the types left in; `make faults` runs all.
FEW = [
    "left",
    "full",
    *(pytest.param(how, marks=pytest.mark.rare) for how in HOW if how not in ("left", "full")),
]
ONE_SIDED = ["left_semi", "left_anti"]


def rows(df: DataFrame) -> Counter[str]:
    """The rows as a multiset; as text, so that NaN equals itself and -0.0 is not 0.0."""
    return Counter(repr(tuple(row)) for row in df.collect())


def numbers(spark: SparkSession, count: int, key: str, value: str, hot: str = "id % 10 < 6") -> DataFrame:
    """60 % of the rows on key 3, every tenth row on null, every row twice."""
    keys = f"case when id % 10 = 9 then null when {hot} then 3 else id % 40 end as k"
    once = spark.range(0, count, 1, 3).selectExpr(keys, f"id as {value}")
    return once.unionAll(once)


def few(spark: SparkSession, value: str, absent: int = -1) -> DataFrame:
    """Keys 0 to 49, two rows each, with two null keys; one key may be absent."""
    keys = "if(id >= 100, null, id % 50) as k"
    return spark.range(0, 102, 1, 2).selectExpr(keys, f"id as {value}").where(f"k is null or k != {absent}")


def check(
    left: DataFrame, right: DataFrame, on: Any, how: str, splits: bool = True, **options: Any
) -> DataFrame:
    joined = skewless.join(left, right, on, how, **({"sample": 1.0} | options))
    plain = left.join(right, on, how)
    assert bool(skewless.explain_join(joined).splits) == splits, str(skewless.explain_join(joined))
    assert joined.schema == plain.schema
    assert rows(joined) == rows(plain)
    return joined


@pytest.mark.parametrize("how", HOW)
def test_a_hot_key_on_the_left(spark: SparkSession, how: str) -> None:
    check(numbers(spark, 400, "k", "v"), few(spark, "w"), "k", how)


@pytest.mark.parametrize("how", HOW)
def test_a_hot_key_on_the_right(spark: SparkSession, how: str) -> None:
    check(few(spark, "v"), numbers(spark, 400, "k", "w"), "k", how, splits=how not in ONE_SIDED)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_further_condition_that_leaves_most_rows_unmatched(
    spark: SparkSession, how: str, side: str
) -> None:
    many, other = numbers(spark, 400, "k", "v"), few(spark, "w")
    on = (many.k == other.k) & (many.v % 37 - other.w % 31 == 0)
    left, right = (many, other) if side == "left" else (other, many)
    check(left, right, on, how, splits=side == "left" or how not in ONE_SIDED)


@pytest.mark.parametrize("how", FEW)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_hot_key_that_the_other_side_lacks(spark: SparkSession, how: str, side: str) -> None:
    many, other = numbers(spark, 400, "k", "v"), few(spark, "w", absent=3)
    left, right = (many, other) if side == "left" else (other, many)
    check(left, right, "k", how, splits=side == "left" or how not in ONE_SIDED)


@pytest.mark.parametrize("how", FEW)
def test_given_keys_present_absent_null_and_on_both_sides(spark: SparkSession, how: str) -> None:
    left, right = numbers(spark, 100, "k", "v"), numbers(spark, 60, "k", "w", hot="id % 10 < 2")
    check(left, right, "k", how, hot=[3, 7, 1000, None], max_replication=50.0)


@pytest.mark.parametrize("how", FEW)
def test_null_is_hot_and_null_safe_equality_matches_it(spark: SparkSession, how: str) -> None:
    left = spark.range(0, 300).selectExpr("if(id % 3 < 2, null, id % 20) as k", "id as v")
    right = few(spark, "w")
    check(left, right, left.k == right.k, how)
    check(left, right, left.k.eqNullSafe(right.k), how)


@pytest.mark.parametrize("how", FEW)
@pytest.mark.parametrize("hot", ["double('NaN')", "double('-0.0')"])
def test_not_a_number_and_negative_zero_are_keys_like_others(spark: SparkSession, how: str, hot: str) -> None:
    left = spark.range(0, 300).selectExpr(f"if(id % 3 < 2, {hot}, double(id % 20)) as k", "id as v")
    values = "array(double('NaN'), double('0.0'), double('-0.0'), double(id), null)"
    right = spark.range(0, 12).selectExpr(f"explode({values}) as k", "id as w")
    check(left, right, "k", how, max_replication=50.0)


@pytest.mark.parametrize("how", FEW)
def test_collated_strings_of_several_columns_and_maps_beside_them(spark: SparkSession, how: str) -> None:
    text = "if(id % 10 < 6, if(id % 2 = 0, 'Hot', 'hOT'), concat('k', id % 30)) collate UTF8_LCASE"
    left = spark.range(0, 300).selectExpr(f"{text} as a", "int(id % 2) as b", "id as v", "map('x', id) as m")
    right = spark.range(0, 60).selectExpr(
        "if(id < 4, 'HOT', concat('K', id % 30)) collate UTF8_LCASE as a", "id % 2 as c", "map(id, 1) as n"
    )
    check(left, right, (left.a == right.a) & (left.b == right.c), how)


@pytest.mark.parametrize("how", FEW)
def test_a_self_join(spark: SparkSession, how: str) -> None:
    left = numbers(spark, 60, "k", "v")
    right = left.where("v % 7 = 0")
    check(left.alias("a"), right.alias("b"), F.col("a.k") == F.col("b.k"), how, max_replication=50.0)


@pytest.mark.parametrize("how", FEW)
@pytest.mark.parametrize("empty", ["left", "right"])
def test_an_empty_side(spark: SparkSession, how: str, empty: str) -> None:
    left, right = numbers(spark, 60, "k", "v"), few(spark, "w")
    gone = F.col("k") > 10**9
    left, right = (left.where(gone), right) if empty == "left" else (left, right.where(gone))
    joined = skewless.join(left, right, "k", how, sample=1.0, hot=[3])
    assert rows(joined) == rows(left.join(right, "k", how))


@pytest.mark.parametrize("how", ["inner", "full"])
def test_columns_of_both_sides_can_be_named_after_the_join(spark: SparkSession, how: str) -> None:
    left, right = numbers(spark, 100, "k", "v"), few(spark, "w")
    joined, plain = skewless.join(left, right, "k", how, sample=1.0), left.join(right, "k", how)
    assert skewless.explain_join(joined).splits
    for both in ([left.k, right.k, "k"], [left.v, right.w]):
        assert rows(joined.select(*both)) == rows(plain.select(*both))
    assert rows(joined.groupBy("k").count()) == rows(plain.groupBy("k").count())


def test_the_number_of_partitions_is_taken_and_no_further_shuffle_is_planned(spark: SparkSession) -> None:
    for asked, got in ((13, 13), (5, 8)):
        joined = check(numbers(spark, 400, "k", "v"), few(spark, "w"), "k", "inner", partitions=asked)
        assert skewless.explain_join(joined).partitions == got
        assert joined.rdd.getNumPartitions() == got
        assert catalyst.physical_plan(joined).toString().count("Exchange hashpartitioning") == 2


def test_the_slots_of_a_key_lie_in_different_partitions(spark: SparkSession) -> None:
    left, right = numbers(spark, 4000, "k", "v"), few(spark, "w")
    joined = skewless.join(left, right, "k", "left", partitions=13, sample=1.0)
    split = next(split for split in skewless.explain_join(joined).splits if split.name == '{"k0":3}')
    placed = joined.where("k = 3").groupBy(F.spark_partition_id()).count().collect()
    assert len(placed) == split.width == 13
    assert max(count for _, count in placed) < 1.5 * sum(count for _, count in placed) / 13


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_control_a_copied_side_that_is_preserved_gives_rows_twice(
    spark: SparkSession, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle sees it if the wrong side is split: what the added rows and the filter are for."""
    left, right = numbers(spark, 400, "k", "v"), few(spark, "w")
    left, right = (right, left) if how == "left" else (left, right)
    on = (left.k == right.k) & (left[left.columns[1]] % 37 - right[right.columns[1]] % 31 == 0)
    monkeypatch.setitem(PRESERVED, f"{how.upper()} OUTER", ())
    joined = skewless.join(left, right, on, how, sample=1.0)
    assert skewless.explain_join(joined).splits
    extra = rows(joined) - rows(left.join(right, on, how))
    assert sum(extra.values()) > 0


def test_the_slot_of_a_row_depends_on_its_content_alone(spark: SparkSession) -> None:
    left, right = numbers(spark, 400, "k", "v"), few(spark, "w")
    splits = skewless.explain_join(skewless.join(left, right, "k", sample=1.0)).splits

    def slots(df: DataFrame) -> Counter[str]:
        found = catalyst.logical_join(df.join(right, "k"))
        assert found is not None
        return rows(_Side(found, "left", splits, content_hash(found.left, None)).slotted(None))

    assert slots(left) == slots(left.repartition(5, "v").sortWithinPartitions(F.desc("v")))
    assert len({row.rsplit(",", 1)[1] for row in slots(left)}) > 4


def test_rows_whose_content_a_retry_may_change_are_dealt_by_their_mapper(spark: SparkSession) -> None:
    left, right = numbers(spark, 400, "k", "v"), few(spark, "w")
    thirds = left.groupBy("k", "v").agg(F.sum(F.col("v") / 3).alias("thirds"))  # by the order of the rows
    thirds = thirds.repartition(8)  # which AQE leaves as they are: there is more than one mapper
    joined = check(thirds, right, "k", "left_semi")  # which splits the left side or nothing

    def dealt_by(df: DataFrame, names: list[str] | None = None) -> str:
        found = catalyst.logical_join(df.join(right, "k"))
        assert found is not None
        side = _Side(found, "left", skewless.explain_join(joined).splits, turn(found.left, names))
        plan: Any = side.slotted(None)._jdf.queryExecution().analyzed().toString()
        return "mapper" if "SPARK_PARTITION_ID" in plan else "content"

    left.createOrReplaceTempView("rows_of_left")
    inner = "select sum(v / 3) from rows_of_left r where r.k = l.k"
    correlated = spark.sql(f"select l.*, ({inner}) thirds from rows_of_left l")

    assert dealt_by(thirds) == dealt_by(correlated) == "mapper"
    assert dealt_by(left.where(F.rand() < 0.5)) == "mapper"
    assert dealt_by(thirds, ["v"]) == "content"
    assert dealt_by(left.join(right, "k").sort("w")) == "content"


def test_copies_stay_within_their_share(spark: SparkSession) -> None:
    left = numbers(spark, 400, "k", "v")
    right = few(spark, "w").unionAll(spark.range(0, 8).selectExpr("3 as k", "id as w"))
    joined = check(left, right, "k", "left", max_replication=0.4)
    found = catalyst.logical_join(left.join(right, "k", "left"))
    assert found is not None
    copied = _Side(found, "right", skewless.explain_join(joined).splits, None).slotted(None).count()
    assert right.count() < copied <= 1.4 * right.count()


def test_what_needs_no_split_is_the_plain_join_and_says_why(spark: SparkSession) -> None:
    left, right = numbers(spark, 400, "k", "v"), few(spark, "w")
    uniform = spark.range(0, 4000).selectExpr("id % 500 as k", "id as v")
    assert "no key" in str(skewless.explain_join(skewless.join(uniform, right, "k", sample=1.0)))
    assert "broadcast" in str(skewless.explain_join(skewless.join(left, F.broadcast(right), "k")))
    random = left.where(F.rand() < 0.5)
    assert "deterministic" in str(
        skewless.explain_join(skewless.join(random, right, "k", "full", sample=1.0))
    )
    assert skewless.explain_join(skewless.join(random, right, "k", "left", sample=1.0)).splits
    for as_they_come in (
        left.limit(300),
        left.dropDuplicates(["v"]),
        left.sample(0.9, 1),
        left.where(F.expr("v > (select max(id) - 3 from (select id from range(9) limit 4))")),
    ):
        plain = skewless.join(as_they_come, right, "k", "full", sample=1.0)
        assert "as they come" in str(skewless.explain_join(plain))


def test_a_join_that_aqe_splits_is_left_to_it(spark: SparkSession, aqe: None) -> None:
    left, right = numbers(spark, 400, "k", "v"), few(spark, "w")
    joined = skewless.join(left, right, "k", sample=1.0)
    assert skewless.explain_join(joined).used == "plain join, left to AQE"
    assert skewless.explain_join(skewless.join(left, right, "k", sample=1.0, leave_to_aqe=False)).splits
    assert skewless.explain_join(skewless.join(left, right, "k", "full", sample=1.0)).splits


def test_bad_arguments_are_typed_errors(spark: SparkSession) -> None:
    left, right = numbers(spark, 40, "k", "v"), few(spark, "w")
    for on, how in ((left.v > right.w, "inner"), (None, "cross"), (None, "inner"), (F.lit(True), "left")):
        with pytest.raises(JoinError, match="equality"):
            skewless.join(left, right, on, how)
    stream = spark.readStream.format("rate").load().selectExpr("value as k")
    with pytest.raises(JoinError, match="stream"):
        skewless.join(stream, right, "k")
    for bad in ({"partitions": 0}, {"max_replication": -1}, {"sample": 0}, {"hot": []}, {"hot": [(1, 2)]}):
        with pytest.raises(SettingError):
            skewless.join(left, right, "k", **bad)
    with pytest.raises(SettingError, match="no key"):
        skewless.join(left, right, "k", hot=["not a number"])
    with pytest.raises(ColumnError, match="deal_by"):
        skewless.join(left, right, "k", deal_by=["nowhere"])
    with pytest.raises(SettingError, match="not one"):
        skewless.explain_join(left)


@pytest.fixture
def aqe(spark: SparkSession) -> Any:
    """AQE with thresholds so low that size is never why it declines."""
    low = {
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1k",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.5",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1k",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }
    for name, value in low.items():
        spark.conf.set(name, value)
    yield
    for name in low:
        spark.conf.unset(name)


def exists(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.sparkSession.sql(
        "select * from {left} l where exists (select 1 from {right} r where r.k = l.k) or l.v % 5 = 1",
        left=left,
        right=right,
    )


QUERIES: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "inner": lambda left, right: left.join(right, "k"),
    "left": lambda left, right: left.join(right, "k", "left"),
    "semi": lambda left, right: left.join(right, "k", "left_semi"),
    "anti": lambda left, right: left.join(right, "k", "left_anti"),
    "full": lambda left, right: left.join(right, "k", "full"),
    "exists": exists,
    "group by": lambda left, right: left.join(right, "k").groupBy("k").agg(F.max("pay")),
    "group by another": lambda left, right: left.join(right, "k").groupBy("w").agg(F.max("pay")),
    "window": lambda left, right: left.join(right, "k").select(
        "*", F.count("*").over(Window.partitionBy("k"))
    ),
    "second join": lambda left, right: left.join(right, "k").join(right.withColumnRenamed("w", "x"), "k"),
    "repartition": lambda left, right: left.repartition(8, "k").join(right, "k"),
    "aggregate": lambda left, right: left.join(right.groupBy("k").agg(F.sum("w")), "k"),
}


@pytest.mark.parametrize("force", [False, pytest.param(True, marks=pytest.mark.rare)])
@pytest.mark.parametrize("shape", QUERIES)
def test_explain_skew_says_what_aqe_then_does(
    spark: SparkSession, aqe: None, shape: str, force: bool
) -> None:
    spark.conf.set(FORCE, str(force).lower())
    try:
        # a payload keeps the shuffled partitions above the threshold
        left = spark.range(0, 4000, 1, 4).selectExpr(
            "if(id % 10 < 8, 3, id % 40) as k", "id as v", "uuid() as pay"
        )
        query = QUERIES[shape](left, few(spark, "w"))
        told = skewless.explain_skew(query)
        query.collect()
        split = "skew=true" in query._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset(FORCE)
    assert told.joins
    assert split == any(not join.declines for join in told.joins), str(told)


def test_explain_skew_names_the_setting(spark: SparkSession) -> None:
    left, right = numbers(spark, 40, "k", "v"), few(spark, "w")
    assert FORCE in str(skewless.explain_skew(left.join(right, "k").groupBy("k").count()))
    assert "full outer" in str(skewless.explain_skew(left.join(right, "k", "full")))
    assert "broadcast" in str(skewless.explain_skew(left.join(F.broadcast(right), "k")))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        assert "spark.sql.adaptive.enabled=true" in str(skewless.explain_skew(left.join(right, "k")))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
