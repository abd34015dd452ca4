"""`skewless.window` on real executors against Spark's own windows over random tables."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructType

import skewless
from skewless.errors import SettingError, WindowError
from skewless.operators import catalyst

SEEDS = [random.randrange(1 << 32) for _ in range(2)]
MANY = [pytest.param(random.randrange(1 << 32), marks=pytest.mark.rare) for _ in range(20)]


def running() -> dict[str, Column]:
    return {
        "place": F.rank(),
        "dense": F.dense_rank(),
        "n": F.count("*"),
        "known": F.count("i"),
        "total": F.sum("i"),
        "exact": F.sum("m"),
        "least": F.min("i"),
        "most": F.max("s"),
        "far": F.max(F.col("d")),
    }


def by_rows() -> dict[str, Column]:
    upper = F.upper("s")
    return {
        "row": F.row_number(),
        "back": F.lag("i", 2, -7),
        "ahead": F.lead(upper),
        "far": F.lead("i", 40),
    }


def rows(df: DataFrame) -> Counter[str]:
    """The rows as a multiset; as text, so that NaN equals itself, and -0.0 as 0.0, which Spark takes for
    equal."""
    return Counter(repr(tuple(0.0 if value == 0 else value for value in row)) for row in df.collect())


def numbers(spark: SparkSession, count: int = 1200) -> DataFrame:
    """60 % of the rows on key 3, every tenth row on null; order values with ties."""
    key = "case when id % 10 = 9 then null when id % 10 < 6 then 3 else id % 40 end as k"
    return spark.range(0, count, 1, 4).selectExpr(key, "id as v", "int(pmod(hash(id), 300)) as t")


def random_rows(spark: SparkSession, folder: Path, seed: int) -> DataFrame:
    draw = random.Random(seed)
    values = draw.choice([5, 60, 100_000])

    def sometimes(value: Any) -> Any:
        return None if draw.random() < 0.15 else value

    data = [
        (
            sometimes(draw.choice(["hot"] * 8 + ["warm"] * 2 + [f"k{i}" for i in range(9)])),
            sometimes(draw.randrange(values) - values // 2),
            sometimes(
                draw.choice([float("nan"), -0.0, 0.0, float("inf"), -1.5, float(draw.randrange(values))])
            ),
            sometimes(draw.choice(["", "a", "B", f"s{draw.randrange(values)}"])),
            sometimes(draw.randrange(1 << 50)),
        )
        for _ in range(draw.choice([300, 900]))
    ]
    df = spark.createDataFrame(data, "k string, i long, d double, s string, m long")
    exact = df.withColumn("m", F.col("m").cast("decimal(20, 3)"))
    exact.repartition(3).write.parquet(str(folder / "rows"))
    return spark.read.parquet(str(folder / "rows"))


def random_order(draw: random.Random, one_way: bool) -> list[Column]:
    columns = draw.sample(["i", "d", "s", "m"], draw.choice([1, 1, 2, 3]))
    falls = draw.random() < 0.5
    order = []
    for name in columns:
        way = falls if one_way else draw.random() < 0.5
        nulls = draw.choice(["first", "last"])
        order.append(getattr(F.col(name), f"{'desc' if way else 'asc'}_nulls_{nulls}")())
    return order


def by_spark(
    df: DataFrame, keys: Any, order: Any, columns: dict[str, Column], frame: str = "range"
) -> DataFrame:
    spec = Window.partitionBy(keys).orderBy(*order)
    framed = spec.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return df.select(
        "*", *((c.over(framed if frame == "rows" else spec)).alias(n) for n, c in columns.items())
    )


@pytest.mark.parametrize("seed", SEEDS + MANY)
def test_running_values_of_random_tables_equal_sparks_own(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    df, order = random_rows(spark, tmp_path, seed), random_order(draw, one_way=False)
    made = skewless.window(df, "k", order, running(), sample=1.0, partitions=draw.choice([None, 5]))
    assert skewless.explain_aggregate(made).used == "cut window", f"seed {seed}"
    plain = by_spark(df, "k", order, running())
    assert made.schema.simpleString() == plain.schema.simpleString()
    assert rows(made) == rows(plain), f"seed {seed}: {order}"


@pytest.mark.parametrize("seed", SEEDS[:1] + MANY)
def test_neighbours_of_random_tables_equal_sparks_own(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Which of two rows with equal order values comes first is Spark's arbitrary choice. So Spark is given an
    order in which such rows are alike in all that is compared; `window` is not."""
    draw = random.Random(seed)
    df, order = random_rows(spark, tmp_path, seed), random_order(draw, one_way=True)
    made = skewless.window(df, "k", order, by_rows(), sample=1.0)
    assert skewless.explain_aggregate(made).used == "cut window", f"seed {seed}"
    falls = catalyst.sorted_by(order[0])[1]
    ties = [F.col("i"), F.upper("s")]
    full = [*order, *(one.desc() if falls else one.asc() for one in ties)]
    in_order = [name for name in ("d", "m") if any(f"<'{name} " in str(one) for one in order)]
    told = ["k", "i", *in_order, F.upper("s"), *by_rows()]
    assert rows(made.select(*told)) == rows(by_spark(df, "k", full, by_rows()).select(*told)), (
        f"seed {seed}: {order}"
    )


def test_control_ranges_without_what_came_differ(spark: SparkSession) -> None:
    """The oracle sees it if nothing is carried."""
    df = numbers(spark)
    alone = df.withColumn("range", F.floor(F.col("t") / 100))
    spec = Window.partitionBy("k", "range").orderBy("t")
    assert rows(alone.select("k", F.rank().over(spec))) != rows(
        by_spark(df, "k", ["t"], {"r": F.rank()}).select("k", "r")
    )


def test_several_keys_expressions_and_names_that_come_twice(spark: SparkSession) -> None:
    df = numbers(spark)
    columns = {"n": F.count("*"), "odd`name.x": F.sum(F.col("v") * 2), "b": F.lag(F.col("v") + 1)}
    keys, order = ["k", (F.col("v") % 2)], [(F.col("t") % 50), F.col("v").asc()]
    made = skewless.window(df, keys, order, columns, hot=[(3, 1), (3, 0), (None, 1), (99, 0)])
    assert len(skewless.explain_aggregate(made).splits) == 3  # (3, 0), (3, 1), (null, 1); 99 is not there
    assert rows(made) == rows(by_spark(df, keys, order, columns))
    twice = df.select("*", F.lit("again").alias("t"))
    made = skewless.window(twice, "k", "v", {"n": F.count("*")}, hot=[3])
    assert skewless.explain_aggregate(made).splits
    assert rows(made) == rows(by_spark(twice, "k", ["v"], {"n": F.count("*")}))


def test_nan_and_negative_zero_are_keys_as_in_spark(spark: SparkSession) -> None:
    odd = "cast(element_at(array('NaN', '-0', '0', '0', '0', '7'), int(1 + id % 6)) as double) as k"
    df = spark.range(0, 600, 1, 4).selectExpr(odd, "id as v", "int(id % 90) as t")
    made = skewless.window(df, "k", "t", {"n": F.count("*"), "d": F.dense_rank()}, sample=1.0)
    assert len(skewless.explain_aggregate(made).splits) == 3
    assert rows(made) == rows(by_spark(df, ["k"], ["t"], {"n": F.count("*"), "d": F.dense_rank()}))


def test_rows_frames_where_no_rows_are_equal_in_order(spark: SparkSession) -> None:
    df, columns = (
        numbers(spark),
        {"s": F.sum("t"), "lo": F.min("t"), "n": F.count("*"), "row": F.row_number()},
    )
    made = skewless.window(df, "k", F.desc("v"), columns, frame="rows", sample=1.0)
    assert skewless.explain_aggregate(made).splits
    assert rows(made) == rows(by_spark(df, "k", [F.desc("v")], columns, "rows"))


def test_row_numbers_among_ties_are_each_given_once_within_their_peers(spark: SparkSession) -> None:
    df = numbers(spark)
    made = skewless.window(df, "k", "t", {"row": F.row_number()}, sample=1.0)
    plain = by_spark(df, "k", ["t"], {"row": F.row_number()})
    assert rows(made.select("k", "t", "row")) == rows(plain.select("k", "t", "row"))
    assert rows(made.select("k", "v", "t")) == rows(df)


def test_a_sum_of_doubles_differs_in_its_last_digits_only(spark: SparkSession) -> None:
    df = numbers(spark).withColumn("x", F.col("v") * 0.1)
    made = skewless.window(df, "k", "v", {"x_sum": F.sum("x")}, sample=1.0)
    assert made.schema["x_sum"].dataType == DoubleType()
    plain = {row.v: row.x_sum for row in by_spark(df, "k", ["v"], {"x_sum": F.sum("x")}).collect()}
    assert {row.v: row.x_sum for row in made.collect()} == pytest.approx(plain)


def test_the_ranges_of_a_hot_key_are_in_different_partitions(spark: SparkSession) -> None:
    df = numbers(spark, 8000)
    made = skewless.window(df, "k", "v", {"n": F.count("*")}, sample=1.0, partitions=8)
    of_hot = made.where("k = 3").groupBy(F.spark_partition_id()).count().collect()
    assert len(of_hot) == 8
    assert max(row["count"] for row in of_hot) < 1.5 * 4800 / 8


def test_where_nothing_is_hot_or_can_be_cut_it_is_sparks_own_window(spark: SparkSession) -> None:
    uniform = spark.range(0, 4000).selectExpr("id % 500 as k", "id as v", "1 as t")
    hot = numbers(spark)
    wide = hot.withColumn("m", F.col("v").cast("decimal(30, 0)"))
    rand, maps = hot.where(F.rand(3) >= 0), hot.withColumn("m", F.create_map(F.lit("v"), "v"))
    one: dict[str, Column] = {"n": F.count("*")}
    for df, order, columns, options, why in (
        (uniform, "v", one, {}, "no key is heavier"),
        (hot, "v", one, {"hot": []}, "hot is empty"),
        (hot, "v", one, {"partitions": 1}, "one partition"),
        (hot.withColumn("t", F.lit(1)), "t", one, {"hot": [3]}, "or none that can be cut"),
        (hot.withColumn("t", F.expr("1 div (v - 5)")), "t", one, {"hot": [3]}, "the sample failed"),
        (hot.limit(900), "v", one, {"hot": [3]}, "not certain that they are the same"),
        (hot.withColumn("k", F.expr("string(k) collate UTF8_LCASE")), "v", one, {"hot": ["3"]}, "collation"),
        (rand, "v", one, {"hot": [3]}, "not certain that they are the same"),
        (wide, "v", {"n": F.sum("m")}, {"hot": [3]}, "no digit to spare"),
        (hot, [F.asc("t"), F.desc("v")], {"n": F.lag("v")}, {"hot": [3]}, "the order rises and falls"),
        (maps, "v", {"n": F.lag("m")}, {"hot": [3]}, "which has no order"),
    ):
        made = skewless.window(df, "k", order, columns, **options)
        assert why in str(skewless.explain_aggregate(made))
        assert not skewless.explain_aggregate(made).splits
        plan = catalyst.physical_plan(made).toString()
        assert (plan.count("Window "), plan.count("Join")) == (1, 0)


def test_what_cannot_be_cut_is_refused_by_name(spark: SparkSession) -> None:
    df = numbers(spark, 40)
    for column, words in (
        (F.ntile(4), "is ntile, .* all rows"),
        (F.percent_rank(), "is percent_rank"),
        (F.avg("v"), "sum and count"),
        (F.first("v"), "left to chance"),
        (F.count_distinct("v"), "DISTINCT"),
        (F.collect_list("v"), "collect_list"),
        (F.lag("v", -1), "lag by -1"),
        (F.sum("v") + 1, r"x is \+,"),
        (F.expr("sum(v)"), "bare calls"),
    ):
        with pytest.raises(WindowError, match=words):
            skewless.window(df, "k", "t", {"x": column})
    with pytest.raises(WindowError, match="frame"):
        skewless.window(df, "k", "t", {"x": F.sum("v")}, frame="whole")
    with pytest.raises(WindowError, match="stream"):
        skewless.window(spark.readStream.format("rate").load(), "value", "timestamp", {"x": F.row_number()})
    good: dict[str, Any] = {"partition_by": "k", "order_by": "t", "columns": {"x": F.row_number()}}
    for bad in (
        {"columns": {}},
        {"columns": {"v": F.rank()}},
        {"partitions": 0},
        {"sample": 2},
        {"hot": "3"},
    ):
        with pytest.raises(SettingError):
            skewless.window(df, **(good | bad))


def test_an_empty_table(spark: SparkSession) -> None:
    df = spark.createDataFrame([], StructType.fromDDL("k int, t int")).where("k > 1")
    assert skewless.window(df, "k", "t", {"x": F.row_number()}).collect() == []
    none = numbers(spark).where("v < 0")
    assert skewless.window(none, "k", "t", {"x": F.row_number()}, hot=[3]).collect() == []
