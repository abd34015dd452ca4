"""`skewless demo`: one stateful stream with drifting hot keys, plain and balanced, on a local cluster.

Each row costs a wait instead of work, so that more tasks than this machine has cores still show what balance
gives.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from skewless.control.pace import Pace
from skewless.errors import SkewlessError
from skewless.report.comparison import Comparison
from skewless.report.page import write
from skewless.report.records import BatchRecord
from skewless.report.status import Status
from skewless.spark.balancer import Balancer, balance
from skewless.spark.session import PROVIDER, PROVIDER_KEY, configure

PARTITIONS = 8
# with two task slots each: every partition has a slot, so a batch takes as long as its heaviest partition
EXECUTORS = 4
BATCHES = 14
ROWS_A_BATCH = 4_000
WAIT_MS_A_ROW = 3.0
HOT_KEYS = 12
HOT_SHARE = 0.6
DRIFT_BATCHES = 6
SHOWN_ROWS = 5
QUERY = (
    "events.groupBy('user').applyInPandasWithState(...) counts the events of each user and adds up their "
    "values, over all batches so far."
)
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

Say = Callable[[str], None]
Rows = dict[int, list[tuple[str, int, int]]]


def run(say: Say = print, report: str | os.PathLike[str] = "skewless-demo.html") -> float:
    """Runs the demo and returns how many times shorter the balanced run's batches were, all of them
    together."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    say(f"starting a local cluster of {EXECUTORS} executors with two slots each (about half a minute) ...")
    spark = _session()
    try:
        with tempfile.TemporaryDirectory(prefix="skewless-demo-") as folder:
            return _both(spark, Path(folder), say, Path(report))
    finally:
        spark.sparkContext.setLogLevel("OFF")
        spark.stop()


def _both(spark: SparkSession, folder: Path, say: Say, report: Path) -> float:
    say(
        f"the query: {QUERY}\n"
        f"{PARTITIONS} partitions, {ROWS_A_BATCH:,} rows a batch; each row waits {WAIT_MS_A_ROW:g} ms, which "
        f"stands for work;\n"
        f"{HOT_KEYS} hot users have {HOT_SHARE:.0%} of the rows, and a third of them are replaced by others "
        f"every {DRIFT_BATCHES} batches.\n\n"
        "plain Spark and skewless.balance(spark) take turns, batch by batch:\n"
    )
    homes = _homes(spark)
    pace = Pace(patience=1, cooldown_seconds=0)
    with balance(spark, max_imbalance=0.1, pace=pace, plan_wait_ms=500) as balancer:
        balancer.exclude("plain")
        plain = Arm(spark, folder, "plain", STOCK)
        level = Arm(spark, folder, "balanced", PROVIDER)
        for number, users in enumerate(_inputs()):
            for arm in (plain, level) if number % 2 else (level, plain):
                arm.batch(number, users)
            say(_line(number, plain, level, balancer))
        status = _status(balancer)
        (balanced,) = status.queries
        plain.query.stop()
        level.query.stop()
    largest = sorted(level.rows[BATCHES - 1], key=lambda row: -row[1])[:SHOWN_ROWS]
    comparison = Comparison(
        f"The query: {QUERY} Each row waits {WAIT_MS_A_ROW:g} ms, which stands for work.",
        tuple(plain.record(i, homes, users) for i, users in enumerate(_inputs())),
        balanced.batches,
        ("user", "events", "total"),
        largest,
        sum(map(len, plain.rows.values())),
        plain.rows == level.rows,
    )
    say(f"\n{status}")
    say(f"\n{comparison.sentence}")
    say(f"the largest rows of the last batch: {', '.join(map(str, largest[:3]))}")
    say(f"report: {write(report, status, comparison).resolve()}")
    if not comparison.same:
        raise SkewlessError(
            "the balanced run's rows differ from plain Spark's. This is a bug in Skewless: please report it."
        )
    return comparison.factor


def _status(balancer: Balancer) -> Status:
    """Of the balanced query alone, once the loop has taken in its last batch."""
    while True:
        status = balancer.status()
        queries = tuple(query for query in status.queries if query.name == "balanced")
        if queries and queries[0].batches and queries[0].batches[-1].batch == BATCHES - 1:
            return replace(status, queries=queries)
        time.sleep(0.1)


def _line(number: int, plain: Arm, level: Arm, balancer: Balancer) -> str:
    time.sleep(0.2)  # Spark's news of the batch's tasks come a little later
    load = balancer.loads(level.query)[-1]
    return (
        f"  batch {number:2d}   plain {plain.millis[-1]:6,} ms   balanced {level.millis[-1]:6,} ms, its "
        f"heaviest partition / mean {1 + load.imbalance:.2f}, epoch {load.epoch}"
    )


def _homes(spark: SparkSession) -> dict[str, int]:
    """The partition that plain Spark puts each user into."""
    users = sorted({user for batch in _inputs() for user in batch})
    found = spark.createDataFrame([(user,) for user in users], "user STRING")
    rows = found.select("user", sql.hash("user").alias("h")).collect()
    return {row.user: row.h % PARTITIONS for row in rows}


def _inputs() -> list[list[str]]:
    """The users of each batch: a few hot ones that drift, and a thousand others."""
    rng = np.random.default_rng(3)
    hot = [f"user-{i}" for i in rng.choice(10_000, HOT_KEYS, replace=False)]
    batches = []
    for batch in range(BATCHES):
        if batch and batch % DRIFT_BATCHES == 0:
            fresh = [f"user-{i}" for i in rng.choice(10_000, HOT_KEYS // 3, replace=False)]
            hot = hot[len(fresh) :] + fresh
        hot_rows = rng.choice(hot, int(ROWS_A_BATCH * HOT_SHARE))
        cold_rows = [f"user-{i}" for i in 10_000 + rng.integers(0, 1_000, ROWS_A_BATCH - len(hot_rows))]
        batches.append([*hot_rows, *cold_rows])
    return batches


class Arm:
    """The query under one provider, fed batch by batch."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, provider: str) -> None:
        self.folder, self.millis = folder / name, list[int]()
        self.rows: Rows = {}
        (self.folder / "in").mkdir(parents=True)
        spark.conf.set(PROVIDER_KEY, provider)
        writer = _query(spark, self.folder).writeStream.outputMode("update").foreachBatch(self._collect)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        self.query: StreamingQuery = writer.queryName(name).start()

    def _collect(self, batch: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = sorted((r.user, r.events, r.total) for r in batch.collect())

    def batch(self, number: int, users: list[str]) -> None:
        lines = (json.dumps({"user": user, "value": i}) for i, user in enumerate(users))
        hidden = self.folder / f".{number}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self.folder / "in" / f"{number:05d}.json")
        self.query.processAllAvailable()
        done = next(p for p in reversed(self.query.recentProgress) if p["batchId"] == number)
        self.millis.append(int(done["durationMs"]["triggerExecution"]))  # with the wait for the plan

    def record(self, number: int, homes: dict[str, int], users: list[str]) -> BatchRecord:
        """A batch of a run that Skewless did not see: its rows by partition, as plain Spark routes them."""
        rows = np.bincount([homes[user] for user in users], minlength=PARTITIONS).astype(np.float64)
        return BatchRecord(number, 0, self.millis[number], len(users), rows, 0)


def _query(spark: SparkSession, folder: Path) -> DataFrame:
    """What a user would have written: it does not mention Skewless."""
    seconds = WAIT_MS_A_ROW / 1000

    def totals(key: tuple[Any, ...], frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        import pandas as pd

        events, total = state.get if state.exists else (0, 0)
        for frame in frames:
            time.sleep(len(frame) * seconds)
            events, total = events + len(frame), total + int(frame["value"].sum())
        state.update((events, total))
        yield pd.DataFrame({"user": [key[0]], "events": [events], "total": [total]})

    source = (
        spark.readStream.schema("user STRING, value LONG")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "in"))
    )
    return source.groupBy("user").applyInPandasWithState(
        totals,
        "user STRING, events LONG, total LONG",
        "events LONG, total LONG",
        "update",
        GroupStateTimeout.NoTimeout,
    )


def _session() -> SparkSession:
    builder = SparkSession.builder.appName("skewless demo").master(f"local-cluster[{EXECUTORS},2,1024]")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.warehouse.dir": "file:" + tempfile.gettempdir() + "/skewless-warehouse",
    }
    for key, value in quiet.items():
        builder = builder.config(key, value)
    spark = configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
