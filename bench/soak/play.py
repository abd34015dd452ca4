"""A driver that plays a round: its queries with tables published at random or by a loop, restarts, replays
and failing tasks. A process of its own, because it is killed; the next one goes on where it was.

    python -m bench.soak.play FOLDER SEED ATTEMPT
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from bench.soak.story import SCHEMA, N, QueryStory, Story
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import skewless
from skewless.errors import SkewlessError
from skewless.spark.session import PROVIDER, PROVIDER_KEY

RETRIES = 4
EAGER = skewless.Pace(patience=1, calm=2, cooldown_seconds=0)
BREAK = "SKEWLESS_SOAK_BREAK"  # for the soak's own test: lose one row, which must be found


def session(app: str, cluster: bool, home: Path) -> Any:
    """The builder of a session; small, and with all its files under `home`."""
    master = "local-cluster[2,1,1024]" if cluster else f"local[2,{RETRIES}]"
    builder = SparkSession.builder.appName(app).master(master)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.task.maxFailures": str(2 * RETRIES),
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": str(N),
        "spark.sql.files.maxPartitionBytes": "3000",  # several map tasks for each batch
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": (home / "warehouse").as_uri(),
        "spark.worker.dir": str(home / "work"),
    }.items():
        builder = builder.config(key, value)
    return builder


def source(spark: SparkSession, folder: Path) -> DataFrame:
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return read.json(str(folder)).withColumn("t", F.timestamp_seconds("t"))


def as_text(df: DataFrame) -> list[str]:
    return sorted(repr(tuple(row)) for row in df.collect())


class Playing:
    """One query while it runs: its sink, its faults, its tables."""

    def __init__(
        self, spark: SparkSession, home: Path, story: QueryStory, random: Random, attempt: int
    ) -> None:
        self.spark, self.home, self.story, self.random = spark, home, story, random
        self.notes = home / f"done-{attempt}.json"
        self.checkpoint = home / "checkpoint"
        self.done: Counter[str] = Counter()
        self.hashes = self._hashes()
        for folder in ("out", "faults"):
            (home / folder).mkdir(exist_ok=True)
        self.query: StreamingQuery
        self.start()

    def _hashes(self) -> list[int]:
        rows = self.spark.read.schema(SCHEMA).json(str(self.home / "in"))
        found = rows.select(skewless.key_hash(*self.story.operator.keys).alias("h")).distinct().collect()
        return sorted(row.h for row in found)

    def start(self) -> None:
        conf, operator = self.spark.conf, self.story.operator
        conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", self.story.checkpoint_format)
        changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        conf.set(changelog, str(self.story.changelog).lower())
        conf.set(PROVIDER_KEY, PROVIDER)
        writer = operator.build(source(self.spark, self.home / "in")).writeStream
        writer = writer.outputMode(operator.mode).trigger(availableNow=True).foreachBatch(self._sink)
        writer = writer.queryName(self.home.name)
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()

    def _sink(self, df: DataFrame, batch: int) -> None:
        """Raises in few words only: Spark looks through the whole text of an error, by a regular expression
        that overflows the stack of the query's thread if it is long."""
        try:
            self._write(df, batch)
        except Exception:
            traceback.print_exc()
            raise RuntimeError("the sink failed or was interrupted; see the log") from None

    def _write(self, df: DataFrame, batch: int) -> None:
        if self.random.random() < 0.3:
            df = df.mapInPandas(failing(self.home / "faults", batch, self.random.random()), df.schema)
        rows = as_text(df)
        if os.environ.get(BREAK) and rows:
            rows = rows[1:]
        path, text = self.home / "out" / f"{batch}.json", json.dumps(rows)
        if path.exists() and path.read_text() != text:
            (self.home / f"replayed-otherwise-{batch}.json").write_text(text)
        staged = path.with_suffix(f".{os.getpid()}")
        staged.write_text(text)
        staged.rename(path)

    def act(self, balancer: skewless.Balancer) -> bool:
        """Something happens to the query, or nothing; false when it is over."""
        if not self.query.isActive:
            if (error := self.query.exception()) is not None:
                raise error
            return False
        luck = self.random.random()
        if luck < 0.5 and self.story.loop != "loop":
            self._publish(balancer)
        elif luck > 0.96:
            self._restart()
        self.notes.with_suffix(".new").write_text(json.dumps(self.done))
        self.notes.with_suffix(".new").rename(self.notes)  # a killed driver's deeds count, too
        return True

    def _publish(self, balancer: skewless.Balancer) -> None:
        try:
            balancer.publish(self.query, self.table())
            self.done["tables"] += 1
        except SkewlessError as error:
            self.done[f"refused by {type(error).__name__}"] += 1

    def table(self) -> skewless.Table:
        random, sides = self.random, self.story.operator.split_sides
        chosen = random.sample(self.hashes, random.randrange(len(self.hashes) + 1))
        moves: dict[int, Any] = {h: random.randrange(N) for h in chosen}
        if sides and chosen and random.random() < 0.7:
            for key_hash in random.sample(chosen, min(len(chosen), 3)):
                moves[key_hash] = self._split(random.choice(sides))
        return skewless.Table(N, moves)

    def _split(self, side: str) -> skewless.Split:
        targets = self.random.sample(range(N), N if side == "grid" else self.random.randint(2, N))
        if side == "grid":
            return skewless.Split.grid([targets[:2], targets[2:]])
        return getattr(skewless.Split, side)(*targets)  # type: ignore[no-any-return]

    def _restart(self) -> None:
        """Stopped in the middle; half of the times the last committed batch runs again, if none has begun
        after it: a driver that dies before its commit leaves just that."""
        self.query.stop()
        self.done["restarts"] += 1
        begun, committed = (self._newest(log) for log in ("offsets", "commits"))
        if begun == committed >= 0 and self.random.random() < 0.5:
            for name in (str(committed), f".{committed}.crc"):
                (self.checkpoint / "commits" / name).unlink(missing_ok=True)
            self.done["replays"] += 1
        self.start()

    def _newest(self, log: str) -> int:
        return max((int(path.name) for path in (self.checkpoint / log).glob("[0-9]*")), default=-1)


def failing(marks: Path, batch: int, share: float) -> Any:
    """Tasks that fail once, after they have read all rows and so committed their state; each leaves a
    mark."""
    folder = str(marks)

    def run(frames: Iterator[Any]) -> Iterator[Any]:
        yield from frames
        context = TaskContext.get()
        chance = Random(hash((batch, context.partitionId(), share))).random()
        if context.attemptNumber() == 0 and chance < share:
            Path(folder, f"{batch}-{context.partitionId()}-{uuid.uuid4()}").touch()
            raise RuntimeError("injected by the soak")

    return run


def main(folder: Path, seed: int, attempt: int) -> None:
    story, random = Story.of(seed), Random(f"{seed} {attempt}")
    spark = skewless.configure(session(f"soak {seed}", story.cluster, folder)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    by_hand = story.queries[0].loop == "hand"
    eager: dict[str, Any] = {"pace": EAGER, "max_imbalance": 0.01, "splits": "auto"}
    balancer = skewless.balance(spark, policy=None) if by_hand else skewless.balance(spark, **eager)
    playing = [
        Playing(spark, folder / f"query-{number}", query, Random(random.random()), attempt)
        for number, query in enumerate(story.queries)
    ]
    alive = playing
    while alive:
        alive = [query for query in alive if query.act(balancer)]
        time.sleep(0.3)
    balancer.stop()
    spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
