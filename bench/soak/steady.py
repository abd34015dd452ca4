"""One query with very many tiny batches on a local cluster of one executor, with a swap every other batch,
restarts and short queries beside it; every so many batches it prints what it holds.

    python -m bench.soak.steady ours|plain FOLDER BATCHES SECONDS
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import psutil
from bench.soak.nemesis import EXECUTOR
from bench.soak.play import EAGER, session
from bench.soak.story import N
from integration.state_run import STOCK
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import skewless
from skewless.errors import SkewlessError
from skewless.spark.session import PROVIDER, PROVIDER_KEY

KEYS = 300
SAMPLE_BATCHES = 40
RESTART_BATCHES = 160
KEPT = 10  # of whatever Spark keeps a number of
CONF = {
    "spark.ui.retainedJobs": str(KEPT),
    "spark.ui.retainedStages": str(KEPT),
    "spark.ui.retainedTasks": str(KEPT),
    "spark.sql.ui.retainedExecutions": str(KEPT),
    "spark.sql.streaming.ui.retainedQueries": str(KEPT),
    "spark.sql.streaming.numRecentProgressUpdates": str(KEPT),
    "spark.sql.streaming.minBatchesToRetain": str(KEPT),
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    "spark.sql.streaming.fileSource.log.compactInterval": str(KEPT),
    "spark.executor.cores": "2",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def keyed(df: DataFrame) -> DataFrame:
    return df.select((F.col("value") * 7919 % KEYS).alias("k")).groupBy("k").count()


class Steady:
    """The query, who swaps its tables, and what is measured of both processes."""

    def __init__(self, spark: SparkSession, folder: Path, ours: bool) -> None:
        self.spark, self.folder, self.ours, self.random = spark, folder, ours, Random(1)
        self.balancer = skewless.balance(spark, pace=EAGER, max_imbalance=0.01) if ours else None
        self.hashes: list[int] = []
        if ours:
            keys = spark.range(KEYS).select(skewless.key_hash("id").alias("h"))
            self.hashes = [row.h for row in keys.collect()]
        (folder / "visit").mkdir()
        spark.range(100).selectExpr("id AS value").coalesce(1).write.json(str(folder / "visit" / "in"))
        self.visits = 0
        spark.conf.set(PROVIDER_KEY, PROVIDER if ours else STOCK)
        self.query = self.start()

    def start(self) -> StreamingQuery:
        rows = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 200)
        writer = keyed(rows.load()).writeStream.outputMode("update").format("noop").queryName("steady")
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def run(self, batches: int, seconds: float) -> None:
        until, sampled, restarted, swapped = time.monotonic() + seconds, 0, 0, 0
        while (batch := self._batch()) < batches and time.monotonic() < until:
            if batch >= sampled + SAMPLE_BATCHES:
                sampled = batch
                self.visit()
                print("SAMPLE", json.dumps(self.sample(batch)), flush=True)
            if batch >= restarted + RESTART_BATCHES:
                restarted = batch
                self.query.stop()
                self.query = self.start()
            if self.balancer and batch >= swapped + 2:
                swapped = batch
                self.swap(self.balancer)
            time.sleep(0.05)
        self.query.stop()

    def _batch(self) -> int:
        if (error := self.query.exception()) is not None:
            raise error
        progress: Any = self.query.lastProgress
        return self._last(int(progress["batchId"]) if progress else 0)

    def _last(self, batch: int) -> int:
        self.newest = max(getattr(self, "newest", 0), batch)
        return self.newest

    def swap(self, balancer: skewless.Balancer) -> None:
        chosen = self.random.sample(self.hashes, KEYS // 3)
        with contextlib.suppress(SkewlessError):  # not yet, after a restart
            balancer.publish(self.query, skewless.Table(N, {h: self.random.randrange(N) for h in chosen}))

    def visit(self) -> None:
        """A query that comes and goes: whatever is kept for each query must go, too."""
        self.visits += 1
        place = self.folder / "visit"
        rows = self.spark.readStream.schema("value LONG").json(str(place / "in"))
        writer = keyed(rows).writeStream.outputMode("update").format("noop").trigger(availableNow=True)
        writer = writer.queryName(f"visit {self.visits}")
        writer.option(
            "checkpointLocation", str(place / f"checkpoint-{self.visits}")
        ).start().awaitTermination()

    def sample(self, batch: int) -> dict[str, int]:
        """Heap after collections, in kB; resident memory; threads; files by where they are."""
        found = {"batch": batch}
        for name, process in self._processes():
            found |= {f"{name} heap kB": heap(process.pid)} if name != "python" else {}
            found |= {
                f"{name} rss kB": process.memory_info().rss // 1024,
                f"{name} threads": process.num_threads(),
            }
        for place in ("checkpoint", "checkpoint/_skewless", "checkpoint/state", "local", "tmp"):
            found[f"files in {place}"] = files(self.folder / place)
        return found

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        me = psutil.Process()
        found = [("python", me)]
        for process in me.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                if EXECUTOR in words and "java" in process.name():
                    found.append(("executor", process))
                elif "SparkSubmit" in words and "java" in process.name():
                    found.append(("driver", process))
        return found


def heap(pid: int) -> int:
    """What is in use after a full collection, the least of three: the query goes on meanwhile."""
    return min(_used(pid) for _ in range(3))


def _used(pid: int) -> int:
    subprocess.run(["jcmd", str(pid), "GC.run"], check=True, capture_output=True)
    told = subprocess.run(
        ["jcmd", str(pid), "GC.heap_info"], check=True, capture_output=True, text=True
    ).stdout
    return sum(map(int, re.findall(r"used (\d+)K", told.split("Metaspace", maxsplit=1)[0])))


def files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def main(arm: str, folder: Path, batches: int, seconds: float) -> None:
    ours = arm == "ours"
    for place in ("tmp", "local"):
        (folder / place).mkdir()
    builder = session(f"soak, steady, {arm}", True, folder).master("local-cluster[1,2,1024]")
    temporary = f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder / 'tmp'}"
    for key in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        builder = builder.config(key, temporary)
    for key, value in CONF.items():
        builder = builder.config(key, value)
    if ours:
        builder = skewless.configure(builder.config("spark.skewless.observe.keyValues", "true"))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    steady = Steady(spark, folder, ours)
    steady.run(batches, seconds)
    if steady.balancer:
        steady.balancer.stop()
    spark.stop()
    left = {f"files in {place}": files(folder / place) for place in ("local", "tmp")}
    swaps = len(list((folder / "checkpoint/_skewless/pins").glob("[0-9]*"))) if ours else 0
    print("END", json.dumps({"batches": steady.newest, "visits": steady.visits, "pins kept": swaps} | left))


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
