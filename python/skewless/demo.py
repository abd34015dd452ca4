"""`skewless demo`: a stream with hot keys on a local cluster, levelled while it runs by one published table.

Each row costs a wait instead of work, so that more tasks than this machine has cores still show what balance gives.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from skewless import policies
from skewless.balancer import Balancer, BatchLoads, balance
from skewless.errors import SkewlessError
from skewless.operators.repartition import key_hash, repartition
from skewless.policies import Limits
from skewless.session import configure
from skewless.snapshot import Snapshot
from skewless.table import Table

PARTITIONS = 8
EXECUTORS = 4
ROWS_A_BATCH = 2_000
WAIT_MS_A_ROW = 1.0
BATCHES = 5

Say = Callable[[str], None]


def run(say: Say = print) -> float:
    """Runs the demo and returns how many times shorter a batch is under the table."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    say(f"starting a local cluster of {EXECUTORS} one-core executors (about half a minute) ...")
    spark = _session()
    try:
        return _levelled(spark, say)
    finally:
        spark.stop()


def _levelled(spark: SparkSession, say: Say) -> float:
    say(f"each row waits {WAIT_MS_A_ROW:g} ms, which stands for work: so {PARTITIONS} tasks show their balance on few cores")
    with balance(spark) as balancer, tempfile.TemporaryDirectory(prefix="skewless-demo-") as folder:
        query = _query(spark, folder)
        _show("hashed by Spark", _wait_for(query, balancer, 1, BATCHES, say), say)
        table = _plan(spark, say)
        swap = balancer.publish(query, table)
        say(f"\npublished a table of {len(table)} moves as epoch {swap.epoch}; batch {swap.batch} is the first under it")
        last = swap.batch + BATCHES - 1
        _show("routed by the table", _wait_for(query, balancer, swap.batch, last, say), say)
        taken = {int(p["batchId"]): int(p["durationMs"]["addBatch"]) for p in query.recentProgress}
        spark.sparkContext.setLogLevel("OFF")  # Spark logs a stack trace for a query that is stopped inside a batch
        query.stop()
        _compare(spark, folder, say)
    before_ms = float(np.median([taken[b] for b in range(2, swap.batch)]))  # batch 1 still starts the Python workers
    after_ms = float(np.median([taken[b] for b in range(swap.batch, last + 1)]))
    say(f"batch time: {before_ms:.0f} ms before, {after_ms:.0f} ms after: {before_ms / after_ms:.2f} times shorter")
    return before_ms / after_ms


def _compare(spark: SparkSession, folder: str, say: Say) -> None:
    """What the stream wrote against the same rows made afresh by plain Spark."""
    written = spark.read.parquet(f"{folder}/rows").select("user", "value")
    expected = _keys(spark.range(0, written.count()).withColumnRenamed("id", "value"))
    same = written.exceptAll(expected).isEmpty() and expected.exceptAll(written).isEmpty()
    say(f"\nrows written: {written.count()}; the same as plain Spark's, none lost, none doubled: {'yes' if same else 'NO'}")
    if not same:
        raise SkewlessError("the demo's rows differ from plain Spark's. This is a bug in Skewless: please report it.")


def _session() -> SparkSession:
    builder = SparkSession.builder.appName("skewless demo").master(f"local-cluster[{EXECUTORS},1,1024]")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.executor.memory": "1g"}
    for key, value in quiet.items():
        builder = builder.config(key, value)
    spark = configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _keys(df: DataFrame) -> DataFrame:
    """Heavy-tailed keys: a power of a uniform number falls on few of 500 keys, none above a fair share."""
    uniform = F.pmod(F.xxhash64("value"), F.lit(1 << 20)) / (1 << 20)
    return df.select(F.concat(F.lit("user-"), F.floor(F.pow(uniform, F.lit(2.6)) * 500)).alias("user"), "value")


def _query(spark: SparkSession, folder: str) -> StreamingQuery:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_A_BATCH).option("numPartitions", 4).load()
    seconds = WAIT_MS_A_ROW / 1000

    def wait(frames: Iterator[Any]) -> Iterator[Any]:
        for frame in frames:
            time.sleep(len(frame) * seconds)
            yield frame

    routed = repartition(_keys(source), PARTITIONS, "user").mapInPandas(wait, "user string, value long")
    writer = routed.writeStream.format("parquet").option("path", f"{folder}/rows")
    return writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime="1 second").start()


def _plan(spark: SparkSession, say: Say) -> Table:
    """What Mixed makes of the keys of a few batches."""
    rows = _keys(spark.range(0, 10 * ROWS_A_BATCH).withColumnRenamed("id", "value"))
    counts = rows.groupBy(key_hash("user").alias("h")).agg(F.count("*").alias("rows")).collect()
    snapshot = Snapshot.of(Table(PARTITIONS), [row.h for row in counts], [float(row.rows) for row in counts])
    plan = policies.get("mixed")(snapshot, Table(PARTITIONS), Limits(max_imbalance=0.02))
    say(f"\nMixed plans in {plan.seconds * 1000:.0f} ms: imbalance {plan.imbalance_before:.2f} -> {plan.imbalance_after:.2f}")
    return plan.table


def _wait_for(query: StreamingQuery, balancer: Balancer, first: int, last: int, say: Say) -> list[BatchLoads]:
    shown = first - 1
    for _ in range(1200):
        progress = query.lastProgress
        done = int(progress["batchId"]) if progress else -1
        for batch in range(shown + 1, min(done, last) + 1):
            say(f"  batch {batch} done")
        shown = max(shown, min(done, last))
        if done >= last:
            return [load for load in balancer.loads(query) if first <= load.batch <= last]
        if not query.isActive:
            break
        time.sleep(0.1)
    raise RuntimeError(f"the demo's query did not reach batch {last}: {query.exception()}")


def _show(title: str, loads: list[BatchLoads], say: Say) -> None:
    rows = np.sum([load.rows for load in loads], axis=0) / len(loads)
    say(f"\n{title}: rows a batch by partition (heaviest / mean = {rows.max() / rows.mean():.2f})")
    for partition, count in enumerate(rows):
        say(f"  {partition}  {'#' * round(40 * count / rows.max()):40}  {count:6.0f}")
