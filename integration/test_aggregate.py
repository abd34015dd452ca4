"""`skewless.aggregate` on real executors against `groupBy().applyInArrow`, Spark's aggregates and a fold."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from skewless.errors import AggregateError, SettingError
from skewless.operators import catalyst
from skewless.operators.aggregates import space_saving, top_k, totals
from skewless.operators.split_groups import turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors do not know this file
CONF = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"}
SCHEMA = "n long, s long, seen array<int>"


def rows(df: DataFrame) -> Counter[str]:
    """The rows as a multiset; as text, so that NaN equals itself."""
    return Counter(repr(tuple(row)) for row in df.collect())


def numbers(spark: SparkSession, count: int = 2000) -> DataFrame:
    """60 % of the rows on key 3, every tenth row on null."""
    keys = "case when id % 10 = 9 then null when id % 10 < 6 then 3 else id % 40 end as k"
    return spark.range(0, count, 1, 4).selectExpr(keys, "id as v", "if(id % 7 = 0, null, int(id % 3)) as w")


def partial(table: pa.Table) -> pa.Table:
    seen = pa.array([sorted(pc.unique(table["w"].drop_null()).to_pylist())], pa.list_(pa.int32()))
    return pa.table({"n": [table.num_rows], "s": [pc.sum(table["v"]).as_py()], "seen": seen})


def merge(table: pa.Table) -> pa.Table:
    seen = pa.array([sorted(pc.unique(pc.list_flatten(table["seen"])).to_pylist())], pa.list_(pa.int32()))
    return pa.table({"n": [pc.sum(table["n"]).as_py()], "s": [pc.sum(table["s"]).as_py()], "seen": seen})


def by_spark(df: DataFrame, *keys: Any) -> DataFrame:
    seen = F.array_sort(F.collect_set("w")).alias("seen")
    return df.groupBy(*keys).agg(F.count("*").alias("n"), F.sum("v").alias("s"), seen)


def check(df: DataFrame, *keys: Any, splits: bool = True, **options: Any) -> DataFrame:
    made = skewless.aggregate(
        df, *keys, partial=partial, merge=merge, schema=SCHEMA, **({"sample": 1.0} | options)
    )
    plain = by_spark(df, *keys)
    assert bool(skewless.explain_aggregate(made).splits) == splits, str(skewless.explain_aggregate(made))
    assert made.schema.simpleString() == plain.schema.simpleString()
    assert rows(made) == rows(plain)
    return made


def test_hot_keys_null_among_them_equal_plain_spark(spark: SparkSession) -> None:
    made = check(numbers(spark), "k")
    names = [split.name for split in skewless.explain_aggregate(made).splits]
    assert names == ['{"k0":3}', '{"k0":null}']
    check(numbers(spark), "k", partitions=5)


def test_given_keys_present_absent_and_null(spark: SparkSession) -> None:
    check(numbers(spark, 300), "k", hot=[3, 7, 1000, None])
    check(numbers(spark, 300), "k", hot=[], splits=False)
    check(numbers(spark, 300).where("k > 1000"), "k", hot=[3])


@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(3)])
def test_random_keys_of_several_columns_in_odd_types(spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    keys = [float("nan"), -0.0, 0.0, 1.5, None]
    words = ["Hot", "hOT", "cold", "", None]
    weights = [draw.random() ** 4 for _ in range(5)]
    data = [
        (draw.choices(keys, weights)[0], draw.choices(words, weights)[0], i, draw.choice([None, 1, 2]))
        for i in range(draw.choice([60, 600]))
    ]
    df = spark.createDataFrame(data, "a double, b string, v long, w int").repartition(3)
    df = df.selectExpr("a", "b collate UTF8_LCASE as b", "v", "w")
    for found in (
        "a",
        "b",
    ):  # a group's key is that of one of its rows, in Spark too: compare what is under it
        made = skewless.aggregate(df, found, partial=partial, merge=merge, schema=SCHEMA, sample=1.0)
        assert rows(made.drop(found)) == rows(by_spark(df, found).drop(found)), f"seed {seed}"
    made = skewless.aggregate(df, "a", "b", partial=partial, merge=merge, schema=SCHEMA, sample=1.0)
    assert rows(made.drop("a", "b")) == rows(by_spark(df, "a", "b").drop("a", "b")), f"seed {seed}"


def test_an_expression_is_a_key_under_its_name(spark: SparkSession) -> None:
    check(numbers(spark), (F.col("v") % 2).alias("odd"), "k")


def test_the_partials_of_a_hot_key_are_made_in_different_tasks_of_bounded_batches(
    spark: SparkSession,
) -> None:
    def where(table: pa.Table) -> pa.Table:
        task = TaskContext.get()
        assert task is not None
        return pa.table({"task": [[task.partitionId()]], "most": [table.num_rows], "n": [table.num_rows]})

    def gathered(table: pa.Table) -> pa.Table:
        tasks = sorted(set(pc.list_flatten(table["task"]).to_pylist()))
        most, total = pc.max(table["most"]).as_py(), pc.sum(table["n"]).as_py()
        return pa.table({"task": [tasks], "most": [most], "n": [total]})

    schema = "task array<int>, most long, n long"
    df = numbers(spark, 8000)
    made = skewless.aggregate(df, "k", partial=where, merge=gathered, schema=schema, sample=1.0, partitions=8)
    hot = made.where("k = 3").collect()[0]
    assert len(hot["task"]) == skewless.explain_aggregate(made).splits[0].width == 8
    assert (hot["most"], hot["n"]) == (50, 4800)
    whole = skewless.aggregate(df, "k", partial=where, merge=gathered, schema=schema, hot=[], partitions=8)
    assert len(whole.where("k = 3").collect()[0]["task"]) == 1


def test_rows_that_are_all_alike_are_dealt_by_their_mappers(spark: SparkSession) -> None:
    words = spark.range(0, 1000, 1, 8).selectExpr("if(id % 10 < 8, 'the', concat('w', id % 30)) as word")
    made = skewless.aggregate(words, "word", using=totals(), sample=1.0)
    assert skewless.explain_aggregate(made).splits[0].width > 2
    assert rows(made) == rows(words.groupBy("word").count())


def test_content_deals_rows_out_only_where_every_attempt_sees_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A sum of floats may differ in its last digits from attempt to attempt: dealt out by it, a row of a
    retried task would go elsewhere, and be lost or doubled."""
    numbers(spark).write.parquet(str(tmp_path / "in"))
    for df in (numbers(spark), spark.read.parquet(str(tmp_path / "in")), stream(spark, tmp_path / "stream")):
        assert str(turn(df)).count("xxhash64") == 2, df
    summed = numbers(spark).groupBy("v").agg(F.sum("k").alias("k"), F.sum(F.lit(0.1)).alias("x"))
    by_user = numbers(spark).mapInArrow(lambda batches: batches, "k long, v long")
    for df in (summed, by_user, numbers(spark).limit(50), numbers(spark).where(F.rand() < 0.5)):
        assert str(turn(df)).count("xxhash64") == 1, df


def test_where_nothing_is_hot_the_plan_is_that_of_plain_groups(spark: SparkSession) -> None:
    uniform = spark.range(0, 4000).selectExpr("id % 500 as k", "id as v", "int(id % 3) as w")
    made = check(uniform, "k", splits=False)
    assert "no key is heavier" in str(skewless.explain_aggregate(made))
    assert catalyst.physical_plan(made).toString().count("Exchange hashpartitioning") == 1
    assert catalyst.physical_plan(made).toString().count("FlatMapGroupsInArrow") == 1
    two = catalyst.physical_plan(check(numbers(spark), "k")).toString()
    assert two.count("Exchange hashpartitioning") == two.count("FlatMapGroupsInArrow") == 2


def test_partials_of_many_rows_or_none_and_results_of_many_rows_or_none(spark: SparkSession) -> None:
    df = numbers(spark)

    def even(table: pa.Table) -> pa.Table:
        return table.filter(pc.equal(pc.bit_wise_and(table["v"], 1), 0)).select(["v"])

    def largest(table: pa.Table) -> pa.Table:
        return table.take(pc.sort_indices(table, [("v", "descending")])[:60])

    def over(table: pa.Table) -> pa.Table:
        return pa.table({"top": table["v"]}).filter(pc.greater(table["v"], 500))

    made = skewless.aggregate(
        df,
        "k",
        partial=even,
        merge=largest,
        schema="v long",
        result=over,
        result_schema="top long",
        hot=[3, 7],
    )
    evens = {key: [] for key in range(40)}  # type: dict[int | None, list[int]]
    evens[None] = []
    for k, v, _ in df.collect():
        evens[k] += [v] if v % 2 == 0 else []
    fold = {
        k: [v for v in (sorted(vs)[-60:] if len(vs) > 50 else sorted(vs)) if v > 500]
        for k, vs in evens.items()
    }
    got: dict[int | None, list[int]] = {key: [] for key in evens}
    for k, top in made.collect():
        got[k].append(top)
    assert {k: sorted(v) for k, v in got.items()} == fold


def test_ready_made_aggregates_against_a_fold(spark: SparkSession) -> None:
    df = numbers(spark)
    found = skewless.aggregate(df, "k", using=totals("v", "w"), sample=1.0)
    assert rows(found) == rows(df.groupBy("k").agg(F.count("*"), F.sum("v"), F.sum("w")))
    best = skewless.aggregate(df, "k", using=top_k("v", 3, "v long, w int"), sample=1.0)
    frame = df.toPandas()
    known = frame.dropna(subset="k")
    fold = {(k, v) for k, group in known.groupby("k") for v in group.v.nlargest(3)}
    assert {(k, v) for k, v, _ in best.collect() if k is not None} == fold
    hitters = skewless.aggregate(df, F.lit("all").alias("x"), using=space_saving("k", 4, "long"), hot=["all"])
    top = {row["item"]: row for row in hitters.collect()}
    assert top[3]["at_least"] <= int((frame.k == 3).sum()) <= top[3]["at_most"]


def test_pandas_functions_equal_apply_in_pandas(spark: SparkSession) -> None:
    df = numbers(spark).withColumn("t", F.timestamp_seconds("v"))

    def part(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(frame)], "s": [frame.v.sum()], "t": [frame.t.max()]})

    def both(frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [frame.n.sum()], "s": [frame.s.sum()], "t": [frame.t.max()]})

    def whole(key: Any, frame: pd.DataFrame) -> pd.DataFrame:
        return part(frame).assign(k=key[0])[["k", "n", "s", "t"]].astype({"k": "Int64"})

    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        plain = df.groupBy("k").applyInPandas(whole, "k long, n long, s long, t timestamp")
        for groups in (df.groupBy("k"), (df, "k")):
            made = skewless.apply_in_pandas(groups, part, both, "n long, s long, t timestamp", sample=1.0)
            assert skewless.explain_aggregate(made).splits
            assert rows(made) == rows(plain)
        expression = skewless.apply_in_pandas(df.groupBy(df.v % 3), part, both, "n long, s long, t timestamp")
        assert rows(expression) == rows(df.groupBy(df.v % 3).agg(F.count("*"), F.sum("v"), F.max("t")))
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    with pytest.raises(SettingError, match="rollup"):
        skewless.apply_in_pandas(df.rollup("k"), part, both, "n long, s long, t timestamp")


@pytest.mark.parametrize("where", ["partial", "merge", "result"])
@pytest.mark.parametrize("how", ["raise", pytest.param("exit", marks=pytest.mark.rare)])
def test_a_function_that_fails_once_is_tried_again_and_nothing_is_lost(
    spark: SparkSession, marks: Path, where: str, how: str
) -> None:
    def once(name: str) -> None:
        mark = marks / name
        if name == where and not mark.exists():
            mark.touch()
            if how == "exit":
                os._exit(1)
            raise ValueError("injected")

    def failing(name: str, function: Any) -> Any:
        def call(table: pa.Table) -> pa.Table:
            once(name)
            return function(table)

        return call

    made = skewless.aggregate(
        numbers(spark),
        "k",
        partial=failing("partial", partial),
        merge=failing("merge", merge),
        schema=SCHEMA,
        result=failing("result", lambda table: table),
        result_schema=SCHEMA,
        sample=1.0,
    )
    assert rows(made) == rows(by_spark(numbers(spark), "k"))
    assert (marks / where).exists()


def test_a_function_that_gives_something_else_than_its_schema_is_named(spark: SparkSession) -> None:
    bad = {
        "partial gave has the columns": {"partial": lambda table: table},
        "merge gave has a column n of type double": {
            "merge": lambda table: merge(table).set_column(0, "n", pa.array([0.5]))
        },
        "partial gave is a dict": {"partial": lambda table: {}},
    }
    for message, functions in bad.items():
        given: dict[str, Any] = {"partial": partial, "merge": merge} | functions
        with pytest.raises(PythonException, match=message):
            skewless.aggregate(numbers(spark), "k", **given, schema=SCHEMA, hot=[3]).collect()


def test_control_a_merge_that_is_none_differs_once_keys_are_split(spark: SparkSession) -> None:
    """The oracle sees a wrong merge, and `check_merge` names it beforehand."""
    wrong = {"partial": partial, "merge": lambda table: table.slice(0, 1), "schema": SCHEMA}
    made = skewless.aggregate(numbers(spark), "k", **wrong, hot=[3])
    assert rows(made) != rows(by_spark(numbers(spark), "k"))
    table = pa.table({"v": [1, 2, 3, 4], "w": pa.array([0, 1, 2, 0], pa.int32())})
    with pytest.raises(skewless.errors.MergeError):
        skewless.check_merge(partial, wrong["merge"], table)
    skewless.check_merge(partial, merge, table)


def test_bad_arguments_are_typed_errors(spark: SparkSession) -> None:
    df = numbers(spark, 40)
    good: dict[str, Any] = {"partial": partial, "merge": merge, "schema": SCHEMA}
    for bad in (
        {"partitions": 0},
        {"sample": 0},
        {"hot": "3"},
        {"hot": [(1, 2)]},
        {"schema": "k long"},
        {"schema": "no type"},
        {"result": partial},
        {"using": totals()},
    ):
        with pytest.raises(SettingError):
            skewless.aggregate(df, "k", **(good | bad))
    with pytest.raises(SettingError, match="twice"):
        skewless.aggregate(df, "k", "k", **good)
    with pytest.raises(SettingError, match="not one"):
        skewless.explain_aggregate(df)


def stream(spark: SparkSession, folder: Path, batches: int = 4) -> DataFrame:
    """A batch per file; in the second nothing of key 3, in the third a new key."""
    for number in range(batches):
        df = numbers(spark, 200 + 100 * number).withColumn("v", F.col("v") + 1000 * number)
        df = df.where("k is null or k != 3") if number == 1 else df
        df = df.withColumn("k", F.coalesce("k", F.lit(None if number == 0 else 2**53 + 1)))
        df.coalesce(1).write.mode("append").parquet(str(folder / "in"))
    return (
        spark.readStream.schema("k long, v long, w int")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "in"))
    )


def run_stream(df: DataFrame, folder: Path, mode: str = "update") -> list[Counter[str]]:
    """The rows of each batch, until the input is done."""
    batches: dict[int, Counter[str]] = {}

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = rows(batch)

    writer = df.writeStream.outputMode(mode).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.foreachBatch(keep).trigger(availableNow=True).start()
    query.awaitTermination()
    return [batches[number] for number in sorted(batches)]


@pytest.mark.parametrize("hot", [None, "auto", [3, None, 77]])
def test_a_stream_gives_in_each_batch_what_a_fold_gives(
    spark: SparkSession, tmp_path: Path, hot: list[Any] | str | None
) -> None:
    df = stream(spark, tmp_path)
    made = skewless.aggregate(df, "k", partial=partial, merge=merge, schema=SCHEMA, hot=hot)
    named = hot if isinstance(hot, list) else []
    assert len(skewless.explain_aggregate(made).splits) == len(named)
    got = run_stream(made, tmp_path)
    files = run_stream(df, tmp_path / "plain", "append")
    seen: list[tuple[Any, ...]] = []
    assert len(got) == len(files) == 4
    for result, batch in zip(got, files, strict=True):
        new = [eval(row) for row in batch.elements()]
        seen += new
        keys = {k for k, _, _ in new}
        fold = []
        for key in keys:
            mine = [(v, w) for k, v, w in seen if k == key]
            words = sorted({w for _, w in mine if w is not None})
            fold.append(repr((key, len(mine), sum(v for v, _ in mine), words)))
        assert result == Counter(fold)


def test_a_streams_width_changes_between_runs_without_moving_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = stream(spark, tmp_path, 2)
    plain = skewless.aggregate(df, "k", partial=partial, merge=merge, schema=SCHEMA)
    run_stream(plain, tmp_path)
    stream(spark, tmp_path, 1)
    wide = skewless.aggregate(df, "k", partial=partial, merge=merge, schema=SCHEMA, hot=[3, None])
    got = run_stream(wide, tmp_path)
    whole = rows(by_spark(spark.read.parquet(str(tmp_path / "in")), "k"))
    assert got
    assert sum((batch - whole).total() for batch in got[-1:]) == 0


def test_the_second_level_of_a_stream_moves_by_a_table(
    spark: SparkSession, tmp_path: Path, balancer: skewless.Balancer
) -> None:
    hashes = [row.h for row in numbers(spark).select(skewless.key_hash("k").alias("h")).distinct().collect()]
    df = stream(spark, tmp_path, 2)
    made = skewless.aggregate(df, "k", partial=partial, merge=merge, schema=SCHEMA, hot=[3])
    batches: list[Counter[str]] = []
    writer = made.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.foreachBatch(lambda batch, _: batches.append(rows(batch))).start()
    try:
        query.processAllAvailable()
        balancer.publish(query, skewless.Table(8, {key_hash: i % 8 for i, key_hash in enumerate(hashes)}))
        stream(spark, tmp_path, 1)
        query.processAllAvailable()
        epochs = [loads.epoch for loads in balancer.loads(query)]
    finally:
        query.stop()
    assert epochs[-1] > 0
    whole = rows(by_spark(spark.read.parquet(str(tmp_path / "in")), "k"))
    assert batches[-1] - whole == Counter()


def test_bad_streams_are_typed_errors(spark: SparkSession) -> None:
    df = spark.readStream.format("rate").load().selectExpr("value % 5 as k", "value as v", "1 as w")
    good: dict[str, Any] = {"partial": partial, "merge": merge, "schema": SCHEMA}
    for bad in (
        {"sample": 1.0},
        {"partitions": 3},
        {"mode": "complete"},
        {"mode": "append"},
        {"timeout_ms": 0},
    ):
        with pytest.raises(SettingError):
            skewless.aggregate(df, "k", **(good | bad))
    with pytest.raises(AggregateError, match="stream"):
        skewless.apply_in_pandas((df, "k"), partial, merge, SCHEMA)
    with pytest.raises(SettingError, match="streams"):
        skewless.aggregate(numbers(spark), "k", **good, mode="append")
