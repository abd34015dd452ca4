"""Run by `test_kafka.py` in a process of its own: a stateful query over a topic, plain or with tables swapped
between its batches, which may kill its driver or an executor on the way.

Its sink is idempotent: one file per batch, which a replay of the batch replaces.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import psutil
from pyspark.sql import DataFrame, SparkSession

import skewless
from integration import state_run
from integration.state_run import STOCK, SWAPS, table
from skewless.spark.session import PROVIDER, PROVIDER_KEY

BATCHES = 6  # at least: Kafka's partitions are not equally long
ROWS = 1_200
KEYS = 40
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Job:
    """What one process does. `die` names where it kills something, once: `sink:B` and `task:B` the driver,
    after the sink has taken batch B or while a task of it updates state; `executor:B` the executor of such a
    task."""

    home: str
    bootstrap: str
    jars: str
    topic: str = "events"
    topic_partitions: int = 3
    min_partitions: int | None = None
    master: str = "local[2]"
    die: str = ""


def rows() -> list[tuple[str, str]]:
    """Key and value: a quarter of the rows has one key, the lower of the others are the hotter."""
    random = Random(7)
    return [
        ("k0" if i % 4 == 0 else f"k{min(random.randrange(KEYS), random.randrange(KEYS))}", str(i))
        for i in range(ROWS)
    ]


def produce(spark: SparkSession, job: Job) -> None:
    """Makes the topic and fills it, unless an earlier process has."""
    if _make_topic(spark, job):
        df = spark.createDataFrame(rows(), "key string, value string").repartition(4)
        options = {"kafka.bootstrap.servers": job.bootstrap, "topic": job.topic}
        df.write.format("kafka").options(**options).save()


def _make_topic(spark: SparkSession, job: Job) -> bool:
    jvm = spark._jvm
    assert jvm is not None
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", job.bootstrap)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        if admin.listTopics().names().get().contains(job.topic):
            return False
        topic = jvm.org.apache.kafka.clients.admin.NewTopic(job.topic, job.topic_partitions, 1)
        admin.createTopics(jvm.java.util.Collections.singletonList(topic)).all().get()
        return True
    finally:
        admin.close()


def events(spark: SparkSession, job: Job) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        "subscribe": job.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": ROWS // BATCHES,
    }
    read = spark.readStream.format("kafka").options(**options)
    if job.min_partitions:
        read = read.option("minPartitions", job.min_partitions)
    return read.load().selectExpr("string(key) as k", "bigint(string(value)) as v", "partition", "offset")


def totals(df: DataFrame, on_key: Callable[[], None]) -> DataFrame:
    """The total of each key after each batch that has it."""

    def add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        on_key()
        batch = pd.concat(list(frames))
        total = (state.get[0] if state.exists else 0) + int(batch.v.sum())
        state.update((total,))
        last = int((batch.offset * 1000 + batch.partition).max())
        yield pd.DataFrame({"k": [key[0]], "total": [total], "rows": [len(batch)], "last": [last]})

    return df.groupBy("k").applyInPandasWithState(
        add, "k string, total long, rows long, last long", "total long", "append", "NoTimeout"
    )


class Arm:
    """One run of the query to the end of the topic."""

    def __init__(self, spark: SparkSession, job: Job, provider: str) -> None:
        self.spark, self.job, self.provider = spark, job, provider
        self.home = Path(job.home) / ("plain" if provider == STOCK else "swapped")
        self.home.mkdir(parents=True, exist_ok=True)
        self.balancer = skewless.balance(spark, policy=None)
        self.hashes = [
            row.h
            for row in spark.createDataFrame(rows(), "k string, v string")
            .select(skewless.key_hash("k").alias("h"))
            .distinct()
            .collect()
        ]

    def run(self) -> None:
        self.spark.conf.set(PROVIDER_KEY, self.provider)
        on_key = self._killer() if self.provider == PROVIDER else (lambda: None)
        writer = totals(events(self.spark, self.job), on_key).writeStream.outputMode("append")
        writer = writer.option("checkpointLocation", str(self.home / "checkpoint")).trigger(availableNow=True)
        self.query = writer.foreachBatch(self._sink).start()
        self.query.awaitTermination()

    def _sink(self, df: DataFrame, batch: int) -> None:
        text = json.dumps(sorted(list(row) for row in df.collect()))
        staged = self.home / "staged"
        staged.write_text(text)
        staged.rename(self.home / f"{batch}.json")
        with (self.home / "written").open("a") as log:
            log.write(f"{batch}\n")
        if self.provider == PROVIDER:
            self._publish(batch + 1)
            if self.job.die == f"sink:{batch}" and self._first():
                os.killpg(os.getpgid(0), signal.SIGKILL)

    def _publish(self, batch: int) -> None:
        """The table of a batch, unless an earlier run of the batch before it has published it."""
        pinned = self.home / "checkpoint" / "_skewless" / "pins" / str(batch)
        if batch in SWAPS and not pinned.exists():
            assert self.balancer.publish(self.query, table(self.hashes, SWAPS[batch])).batch == batch

    def _first(self) -> bool:
        return _once(f"{self.job.home}/fired")

    def _killer(self) -> Callable[[], None]:
        """Called in tasks for every key: in the batch that `die` names it kills driver or executor, once."""
        where, _, number = self.job.die.partition(":")
        if where not in ("task", "executor"):
            return lambda: None
        driver, mark = os.getpgid(0), f"{self.job.home}/fired"
        started = str(self.home / "checkpoint" / "offsets" / number)

        def kill() -> None:
            if not os.path.exists(started) or not _once(mark):
                return
            if where == "task":
                os.killpg(driver, signal.SIGKILL)
            else:
                parents = psutil.Process().parents()
                next(p for p in parents if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())).kill()
            time.sleep(60)

        return kill


def _once(mark: str) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def session(job: Job) -> SparkSession:
    builder = SparkSession.builder.master(job.master).config("spark.jars", job.jars)
    for key, value in (SESSION | state_run.CONF).items():
        builder = builder.config(key, value)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(job: Job) -> None:
    spark = session(job)
    produce(spark, job)
    plain = Path(job.home) / "plain-is-done"
    if not plain.exists():
        Arm(spark, job, STOCK).run()
        plain.touch()
    Arm(spark, job, PROVIDER).run()
    spark.stop()


if __name__ == "__main__":
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    main(Job(**json.loads(sys.argv[1])))
