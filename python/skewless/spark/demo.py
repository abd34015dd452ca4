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
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from skewless.control.pace import Pace
from skewless.errors import SkewlessError
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
        f"the query: events.groupBy('user').applyInPandasWithState(...); {PARTITIONS} partitions, "
        f"{ROWS_A_BATCH:,} rows a batch\n"
        f"each row waits {WAIT_MS_A_ROW:g} ms, which stands for work; {HOT_KEYS} hot users have "
        f"{HOT_SHARE:.0%} of the rows,\n"
        f"and a third of them are replaced by others every {DRIFT_BATCHES} batches."
    )
    inputs = _inputs()
    say("\nplain Spark")
    plain_ms, plain = _stream(spark, folder / "plain", inputs, STOCK, say)
    say("\nbalanced: skewless.balance(spark), nothing else changed")
    pace = Pace(patience=1, cooldown_seconds=0)
    with balance(spark, max_imbalance=0.1, pace=pace, plan_wait_ms=500) as balancer:
        level_ms, level = _stream(spark, folder / "balanced", inputs, PROVIDER, say, balancer)
        say("\n" + str(balancer.status()))
        say(f"\nreport: {balancer.report(report).resolve()}")
    factor = sum(plain_ms) / sum(level_ms)
    say(
        f"\nbatch time, median of {BATCHES - 1}: plain {np.median(plain_ms):,.0f} ms, balanced "
        f"{np.median(level_ms):,.0f} ms\n"
        f"all batches together: {factor:.2f} times shorter, swaps and the batches before the first one "
        "included"
    )
    same = plain == level
    say(
        f"results identical: {'yes' if same else 'NO'} ({sum(map(len, level.values())):,} rows of "
        f"{len(level)} batches compared)"
    )
    if not same:
        raise SkewlessError(
            "the balanced run's rows differ from plain Spark's. This is a bug in Skewless: please report it."
        )
    return factor


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


def _stream(
    spark: SparkSession,
    folder: Path,
    inputs: list[list[str]],
    provider: str,
    say: Say,
    balancer: Balancer | None = None,
) -> tuple[list[int], Rows]:
    """The batch times, without the first, which starts the Python workers; and the rows of each batch."""
    (folder / "in").mkdir(parents=True)
    spark.conf.set(PROVIDER_KEY, provider)
    rows: Rows = {}

    def collect(batch: DataFrame, batch_id: int) -> None:
        rows[batch_id] = sorted((r.user, r.events, r.total) for r in batch.collect())

    query = _query(spark, folder).writeStream.outputMode("update").foreachBatch(collect)
    running = query.option("checkpointLocation", str(folder / "checkpoint")).start()
    taken = [_batch(running, folder, i, users, say, balancer) for i, users in enumerate(inputs)]
    running.stop()
    return taken[1:], rows


def _batch(
    query: StreamingQuery, folder: Path, number: int, users: list[str], say: Say, balancer: Balancer | None
) -> int:
    lines = (json.dumps({"user": user, "value": i}) for i, user in enumerate(users))
    hidden = folder / f".{number}"
    hidden.write_text("\n".join(lines))
    hidden.rename(folder / "in" / f"{number:05d}.json")
    query.processAllAvailable()
    done = next(p for p in reversed(query.recentProgress) if p["batchId"] == number)
    level = ""
    if balancer is not None:
        time.sleep(0.2)  # Spark's news of the batch's tasks come a little later
        load = balancer.loads(query)[-1]
        level = f"   heaviest partition / mean {1 + load.imbalance:.2f}, epoch {load.epoch}"
    say(f"  batch {number:2d}  {done['durationMs']['triggerExecution']:6,} ms{level}")
    return int(done["durationMs"]["triggerExecution"])  # with the wait for the plan


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
