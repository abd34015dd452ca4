"""The loop on real executors: it levels what is skewed, leaves alone what is level, and never costs a query
its rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import skewless
from skewless.model.plan import Plan
from skewless.spark.session import PROVIDER, PROVIDER_KEY

N = 4
CORES = 2  # on each of two executors: a slot for each partition, or Spark's scheduler would level them itself
BATCHES = 7
WAIT_SECONDS = 0.002  # a row's work
CONF = {"spark.sql.shuffle.partitions": str(N), "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EAGER = skewless.Pace(patience=1, cooldown_seconds=0)

Totals = dict[int, list[tuple[str, int]]]


@pytest.fixture(scope="module")
def hot(spark: SparkSession) -> list[str]:
    """Three keys that Spark hashes to one partition."""
    keys = (
        spark.range(200)
        .selectExpr("concat('k', id) as k")
        .select("k", skewless.key_hash("k").alias("h"))
        .collect()
    )
    return [row.k for row in keys if row.h % N == 1][:3]


def skewed(hot: list[str], batch: int) -> list[str]:
    random = Random(batch)
    return [random.choice(hot) for _ in range(240)] + [f"c{random.randrange(60)}" for _ in range(160)]


def totals(df: DataFrame, seconds: float = WAIT_SECONDS) -> DataFrame:
    def count(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import time

        import pandas as pd

        rows = sum(len(frame) for frame in frames)
        time.sleep(rows * seconds)
        total = (state.get[0] if state.exists else 0) + rows
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "n": [total]})

    return df.groupBy("k").applyInPandasWithState(count, "k string, n long", "n long", "update", "NoTimeout")


class Stream:
    """A query over a folder; each batch is waited for, and then a moment more, in which the loop may plan."""

    def __init__(
        self, spark: SparkSession, home: Path, provider: str, query: Callable[[DataFrame], DataFrame] = totals
    ) -> None:
        self.home, self.rows = home, {}  # type: ignore[var-annotated]
        (home / "in").mkdir(parents=True)
        spark.conf.set(PROVIDER_KEY, provider)
        source = spark.readStream.schema("k STRING").option("maxFilesPerTrigger", 1).json(str(home / "in"))
        writer = query(source).writeStream.outputMode("update").foreachBatch(self._note)
        self.query: StreamingQuery = writer.option("checkpointLocation", str(home / "checkpoint")).start()

    def _note(self, df: DataFrame, batch: int) -> None:
        self.rows[batch] = sorted((row.k, row.n) for row in df.collect())

    def batch(self, number: int, keys: list[str], pause: float = 0.0) -> None:
        hidden = self.home / f".{number}"
        hidden.write_text("\n".join(json.dumps({"k": key}) for key in keys))
        hidden.rename(self.home / "in" / f"{number}.json")
        self.query.processAllAvailable()
        time.sleep(pause)


def plain(spark: SparkSession, home: Path, batches: list[list[str]]) -> Totals:
    stream = Stream(spark, home, STOCK, lambda df: totals(df, 0))
    for number, keys in enumerate(batches):
        stream.batch(number, keys)
    stream.query.stop()
    return stream.rows


def test_a_skewed_stateful_query_is_levelled_by_itself_with_plain_sparks_results(
    spark: SparkSession, hot: list[str], tmp_path: Path
) -> None:
    batches = [skewed(hot, number) for number in range(BATCHES)]
    expected = plain(spark, tmp_path / "plain", batches)
    with skewless.balance(spark, max_imbalance=0.15, pace=EAGER, poll_seconds=0.05) as balancer:
        stream = Stream(spark, tmp_path / "level", PROVIDER)
        for number, keys in enumerate(batches):
            stream.batch(number, keys, pause=0.7)
        loads = balancer.loads(stream.query)
        status = balancer.status()
        report = balancer.report(tmp_path / "report.html").read_text()
        stream.query.stop()
    assert stream.rows == expected
    assert loads[0].imbalance > 1
    assert loads[-1].imbalance < 0.5, [round(load.imbalance, 2) for load in loads]
    (query,) = status.queries
    assert query.swaps
    assert query.batches[-1].epoch == loads[-1].epoch > 0
    assert "keys moved" in str(status)
    assert "<svg" in report
    assert all(
        key.value is None for batch in query.batches for key in batch.hot_keys
    )  # values are shown only on request
    assert not any(f'"{key}"' in str(status) or f"&quot;{key}&quot;" in report for key in hot)


def test_level_input_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    keys = [f"u{i}" for i in range(400)]
    with skewless.balance(spark, max_imbalance=0.3, pace=EAGER, poll_seconds=0.05) as balancer:
        stream = Stream(spark, tmp_path, PROVIDER, lambda df: totals(df, 0.0005))
        for number in range(4):
            stream.batch(number, keys, pause=0.4)
        (query,) = balancer.status().queries
        stream.query.stop()
    assert not query.swaps
    assert query.why.startswith("level")
    assert not (tmp_path / "checkpoint" / "_skewless").exists()


def test_a_policy_that_raises_costs_the_query_nothing(
    spark: SparkSession, hot: list[str], tmp_path: Path
) -> None:
    def broken(*_: Any) -> Plan:
        raise RuntimeError("no plan today")

    with skewless.balance(spark, broken, pace=EAGER, poll_seconds=0.05) as balancer:
        stream = Stream(spark, tmp_path, PROVIDER)
        for number in range(3):
            stream.batch(number, skewed(hot, number), pause=0.4)
        text = str(balancer.status())
        assert stream.query.isActive
        stream.query.stop()
    assert "no plan today" in text
    assert len(stream.rows) == 3


def test_a_query_that_cannot_take_tables_is_left_alone_and_named(
    spark: SparkSession, hot: list[str], tmp_path: Path
) -> None:
    """An aggregate without keys: all rows meet in one partition, and there is nothing to route."""
    with skewless.balance(spark, pace=EAGER, poll_seconds=0.05) as balancer:
        stream = Stream(
            spark, tmp_path, PROVIDER, lambda df: df.groupBy().count().selectExpr("'all' as k", "count as n")
        )
        for number in range(2):
            stream.batch(number, skewed(hot, number), pause=0.4)
        assert stream.query.isActive
        assert stream.rows[1] == [("all", 800)]
        stream.query.stop()
        assert "Traceback" not in str(balancer.status())


def test_a_look_ahead_levels_batches_that_no_past_could_foresee(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch has hot keys of its own, all at home in one partition and never seen before."""
    keys = (
        spark.range(400)
        .selectExpr("concat('k', id) as k")
        .select("k", skewless.key_hash("k").alias("h"))
        .collect()
    )
    crowd = [row.k for row in keys if row.h % N == 1]
    batches = [skewed(crowd[6 * number : 6 * number + 6], number) for number in range(5)]
    expected = plain(spark, tmp_path / "plain", batches)
    with skewless.balance(
        spark, max_imbalance=0.15, poll_seconds=0.05, look_ahead=True, plan_wait_ms=20_000
    ) as balancer:
        stream = Stream(
            spark, tmp_path / "ahead", PROVIDER, lambda df: totals(df, 0.01)
        )  # worth a swap for one batch
        for number, rows in enumerate(batches):
            stream.batch(number, rows, pause=0.3)
        loads, (query,) = balancer.loads(stream.query), balancer.status().queries
        read = [p["numInputRows"] for p in stream.query.recentProgress if p["numInputRows"]]
        stream.query.stop()
    assert stream.rows == expected
    assert query.errors == {}
    assert loads[0].imbalance > 1  # the first batch of a run is never waited with
    swapped = {swap.batch for swap in query.swaps}  # on a slow machine a look may be too dear for every batch
    assert 1 in swapped
    assert all(load.imbalance < 0.25 for load in loads if load.batch in swapped), [
        round(load.imbalance, 2) for load in loads
    ]
    assert read == [400] * 5
