"""Load distance over time on a local cluster: plain Spark beside the loop with each placement policy, under
one migration budget; an executor is drained and ended, and another added, while the queries run.

The queries take turns, batch by batch, on the same rows. Each key's row waits a little in the stateful stage,
which stands for work, so that two cores can show four slots; partitions have between one key and eight. All
queries begin with the same bad placement: five of twelve partitions on one of four executors, the heavy ones
among them. Plain Spark's stays. The load distance is the largest difference between an executor's task time
and the mean of the executors, as a share of the mean.

    python bench/placement.py --policies flux greedy milp
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import skewless
from skewless.spark.gateway import Gateway
from skewless.spark.session import PROVIDER, PROVIDER_KEY

EXECUTORS = 4
WEIGHTS = (8, 7, 6, 5, 4, 1, 3, 2, 1, 3, 2, 2)  # keys of each partition
START = (0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3)  # executor of each partition
WAIT_MS = 40
LOOP_FROM, DRAIN_FROM, ADD_FROM, END = 3, 10, 16, 24
PACE = skewless.PlacementPace(patience=2, cooldown_seconds=10, plan_share=0.25)


@dataclass
class Arm:
    """One query, in a session of its own; no policy is plain Spark's placement."""

    spark: SparkSession
    folder: Path
    policy: str | None
    hand: skewless.Balancer
    balancer: skewless.Balancer | None = None
    query: StreamingQuery | None = None
    taken_ms: list[float] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def start(self) -> None:
        (self.folder / "in").mkdir(parents=True)
        self.spark.conf.set("spark.sql.shuffle.partitions", len(WEIGHTS))
        self.spark.conf.set(PROVIDER_KEY, PROVIDER)
        source = self.spark.readStream.schema("k LONG").option("maxFilesPerTrigger", 1)
        counts = source.json(str(self.folder / "in")).groupBy("k").count()
        waited = counts.withColumn("waited", F.expr(f"java_method('java.lang.Thread', 'sleep', {WAIT_MS}L)"))

        def digest(df: DataFrame, batch: int) -> None:
            self.rows.append(sorted((row.k, row["count"]) for row in df.collect()))

        writer = waited.writeStream.outputMode("update").foreachBatch(digest)
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def feed(self, number: int, keys: list[int]) -> None:
        assert self.query is not None
        hidden = self.folder / f".{number}"
        hidden.write_text("\n".join(json.dumps({"k": key}) for key in keys))
        hidden.rename(self.folder / "in" / f"{number:05d}.json")
        self.query.processAllAvailable()
        progress = next(p for p in reversed(self.query.recentProgress) if p["batchId"] == number)
        self.taken_ms.append(float(progress["durationMs"]["triggerExecution"]))
        self.distances.append(self._distance(number))

    def _distance(self, number: int) -> float:
        """Of the last batch, among the executors that are alive."""
        executors = dict.fromkeys(Gateway(self.spark).executors(), 0.0)
        for _ in range(100):
            load = self.hand.loads(self.query)[-1]
            if load.batch == number and None not in load.executors:
                break
            time.sleep(0.05)
        for executor, run_ms in zip(load.executors, load.run_ms.tolist(), strict=True):
            executors[str(executor)] = executors.get(str(executor), 0.0) + run_ms
        found = np.array(list(executors.values()))
        return float(np.abs(found - found.mean()).max() / found.mean())


def cluster() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("bench placement").master(f"local-cluster[{EXECUTORS},1,1024]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }.items():
        builder = builder.config(key, value)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    while len(Gateway(spark).executors()) < EXECUTORS:
        time.sleep(0.1)
    return spark


def keys_by_weight(spark: SparkSession) -> list[int]:
    """As many keys in each partition as its weight."""
    n = len(WEIGHTS)
    hashed = spark.range(40 * n).select("id", F.pmod(skewless.key_hash("id"), F.lit(n)).alias("p")).collect()
    found: list[int] = []
    for partition, weight in enumerate(WEIGHTS):
        found += [row.id for row in hashed if row.p == partition][:weight]
    assert len(found) == sum(WEIGHTS)
    return found


def failed_tasks(spark: SparkSession) -> int:
    every = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    return sum(every.apply(i).failedTasks() for i in range(every.size()))


def run(policies: list[str]) -> None:
    spark = cluster()
    keys, names = keys_by_weight(spark), sorted(Gateway(spark).executors())
    arms = started(spark, policies)
    events: dict[int, str] = {}
    drained = threading.Thread(target=drain_and_end, args=(spark, arms, names[0], events))
    for number in range(END):
        if number == LOOP_FROM:
            begin_to_place(arms)
        elif number == DRAIN_FROM:
            drained.start()
        elif number == ADD_FROM:
            drained.join(60)
            Gateway(spark).request_executors(EXECUTORS)
            events[number] = "one more executor is asked for"
        for arm in arms:
            arm.feed(number, keys)
        if number == 0:
            for arm in arms:
                arm.hand.place(arm.query, {p: names[e] for p, e in enumerate(START)})
        words = [f"{arm.policy or 'plain'} {arm.distances[-1]:.2f} {arm.taken_ms[-1]:5.0f}" for arm in arms]
        alive = " ".join(sorted(Gateway(spark).executors()))
        print(f"batch {number:2}  {'  '.join(words)}  executors {alive}", flush=True)
    tell(spark, arms, events)
    for arm in arms:
        if arm.balancer is not None:
            arm.balancer.stop()
        if arm.query is not None:
            arm.query.stop()
    spark.stop()


def started(spark: SparkSession, policies: list[str]) -> list[Arm]:
    folder, arms = Path(tempfile.mkdtemp()), []
    for name in ["plain", *policies]:
        session = spark.newSession()
        policy = None if name == "plain" else name
        arms.append(Arm(session, folder / name, policy, skewless.balance(session, policy=None)))
        arms[-1].start()
    return arms


def begin_to_place(arms: list[Arm]) -> None:
    for arm in arms:
        if arm.policy is None:
            arm.hand.place(arm.query, {})  # the partitions stay where they are
        else:
            arm.balancer = skewless.balance(arm.spark, policy=None, placement=arm.policy, placement_pace=PACE)


def drain_and_end(spark: SparkSession, arms: list[Arm], executor: str, events: dict[int, str]) -> None:
    """All loops empty it; then it is ended. What plain Spark has there is loaded elsewhere after that."""
    balanced = [arm.balancer for arm in arms if arm.balancer is not None]
    for balancer in balanced:
        balancer._loop.placer.leave(executor)
    for balancer in balanced:
        balancer.drain(executor, timeout_seconds=300)
    has_ended = Gateway(spark).end_executor(executor, 30.0)
    at = len(arms[0].taken_ms)
    events[at] = f"executor {executor} was " + (
        "ended" if has_ended else "not ended: jobs ran without a pause"
    )


def tell(spark: SparkSession, arms: list[Arm], events: dict[int, str]) -> None:
    print()
    for number, what in sorted(events.items()):
        print(f"before batch {number}: {what}")
    same = all(arm.rows == arms[0].rows for arm in arms)
    print(f"failed tasks: {failed_tasks(spark)}; rows {'the same' if same else 'DIFFER'}")
    parts = {"bad start": (2, LOOP_FROM), "before the drain": (8, DRAIN_FROM), "at the end": (END - 4, END)}
    for arm in arms:
        words = [
            f"{name} {np.median(arm.distances[a:b]):.2f} / {np.median(arm.taken_ms[a:b]):.0f} ms"
            for name, (a, b) in parts.items()
        ]
        placing = None if arm.balancer is None else arm.balancer.status().placing
        moves = "" if placing is None else f"; {placing.plans} plans, {placing.moves} moves"
        worst = max(arm.taken_ms[DRAIN_FROM:])
        print(f"{arm.policy or 'plain':8} {'; '.join(words)}; longest since the drain {worst:.0f} ms{moves}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=["flux", "greedy", "milp"])
    run(parser.parse_args().policies)
