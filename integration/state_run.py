"""A stateful query on real executors, and the queries that the tests of state run: input, tables, what each
batch gave.

Apart from the tests because those with faults and those without run the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import skewless
from skewless.spark.session import PROVIDER, PROVIDER_KEY

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # executors cannot import it

N = 4
BATCHES = 6
SWAPS = {1: 1, 3: 2, 4: 0}  # batch -> table: keys move, others move and some return, all return
CONF = {
    "spark.sql.shuffle.partitions": str(N),
    "spark.sql.files.maxPartitionBytes": "1500",  # several map tasks a batch
    "spark.task.maxFailures": "8",
    # executors live too short for more compilation to pay
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HOUR_MS = 3_600_000

Rows = list[tuple[Any, ...]]


def batch_rows(batch: int) -> list[dict[str, Any]]:
    """Rows of a batch: 30 keys, the lower the hotter, and null; times advance, so that time-outs and timers
    fire."""
    random = Random(batch)
    keys = [
        None if random.randrange(20) == 0 else f"k{min(random.randrange(30), random.randrange(30))}"
        for _ in range(60)
    ]
    return [
        {"k": k, "v": batch * 1000 + i, "t": batch * 30 + random.randrange(40)} for i, k in enumerate(keys)
    ]


def table(hashes: list[int], by: int) -> skewless.Table:
    """Moves two thirds of the key hashes; `by` varies which and where, and 0 is plain hashing."""
    return skewless.Table(N, {h: (h + by) % N for h in hashes if by and h // 7 % 3 != by})


def key_hashes(spark: SparkSession) -> list[int]:
    """The hashes of all keys of the input."""
    keys = spark.createDataFrame(
        [(row["k"],) for batch in range(BATCHES) for row in batch_rows(batch)], "k string"
    ).distinct()
    return [row.h for row in keys.select(skewless.key_hash("k").alias("h")).collect()]


# The queries


def totals(df: DataFrame, pause: Callable[[Any], None] = lambda key: None) -> DataFrame:
    def add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        pause(key[0])
        total = (state.get[0] if state.exists else 0) + sum(int(frame.v.sum()) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    return df.groupBy("k").applyInPandasWithState(
        add, "k string, total long", "total long", "update", "NoTimeout"
    )


def time_outs(df: DataFrame) -> DataFrame:
    """A count that a time-out reports and removes."""

    def count(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]]})
            state.remove()
        else:
            rows = pd.concat(list(frames))
            state.update(((state.get[0] if state.exists else 0) + len(rows),))
            state.setTimeoutTimestamp(
                max(int(rows.t.max().timestamp() * 1000), state.getCurrentWatermarkMs()) + 5000
            )

    timed = df.withWatermark("t", "20 seconds").groupBy("k")
    return timed.applyInPandasWithState(count, "k string, n long", "n long", "append", "EventTimeTimeout")


class Variables(StatefulProcessor):
    """A value, a list and a map for each key; with a time to live Spark keeps an index of expiries beside
    each."""

    def __init__(self, ttl_ms: int | None = None) -> None:
        self.ttl_ms = ttl_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long", self.ttl_ms)
        self.seen = handle.getListState("seen", "v long", self.ttl_ms)
        self.by_digit = handle.getMapState("by_digit", "d long", "s long", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        values = sorted(int(v) for frame in rows for v in frame.v)
        total = (self.count.get() or (0,))[0] + len(values)
        self.count.update((total,))
        self.seen.appendList([(v,) for v in values])
        for v in values:
            self.by_digit.updateValue((v % 10,), ((self.by_digit.getValue((v % 10,)) or (0,))[0] + v,))
        text = (
            f"{sorted(tuple(v) for v in self.seen.get())} "
            f"{sorted((tuple(k), tuple(v)) for k, v in self.by_digit.iterator())}"
        )
        yield pd.DataFrame({"k": [key[0]], "n": [total], "what": [text]})

    def close(self) -> None:
        pass


class Timers(StatefulProcessor):
    """A count that the last of a key's timers clears."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        frame = pd.concat(list(rows))
        total = (self.count.get() or (0,))[0] + len(frame)
        self.count.update((total,))
        self.handle.registerTimer(
            max(int(frame.t.max().timestamp() * 1000), timerValues.getCurrentWatermarkInMs()) + 5000
        )
        yield pd.DataFrame({"k": [key[0]], "n": [total], "what": ["rows"]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = (self.count.get() or (-1,))[0]
        if not list(self.handle.listTimers()):
            self.count.clear()
        yield pd.DataFrame(
            {"k": [key[0]], "n": [total], "what": [f"timer {expiredTimerInfo.getExpiryTimeInMs()}"]}
        )

    def close(self) -> None:
        pass


def processed(df: DataFrame, processor: StatefulProcessor, time_mode: str) -> DataFrame:
    return df.groupBy("k").transformWithStateInPandas(
        processor, "k string, n long, what string", "update", time_mode
    )


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("k").count()


# A run of a query


def collect(df: DataFrame) -> Rows:
    return sorted((tuple(row) for row in df.collect()), key=str)


@dataclass
class Run:
    """One query with its own source folder and checkpoint; a batch is one file, a batch that runs again
    replaces its rows."""

    spark: SparkSession
    home: Path
    build: Callable[[DataFrame], DataFrame]
    mode: str = "update"
    note: Callable[[DataFrame], Any] = collect
    endless: bool = False  # in processing time, transformWithState runs batches without data for ever
    checkpoint_format: int = 1
    files: bool = False  # rows go to Parquet files in `home/out` instead of `rows`

    def __post_init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.checkpoint = self.home / "checkpoint"
        self.query: StreamingQuery
        (self.home / "source").mkdir(parents=True, exist_ok=True)

    def start(self, provider: str = PROVIDER) -> Run:
        def sink(df: DataFrame, batch: int) -> None:
            self.rows[batch] = self.note(df)

        self.spark.conf.set(PROVIDER_KEY, provider)
        self.spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", self.checkpoint_format)
        read = self.spark.readStream.schema("k string, v long, t long").option("maxFilesPerTrigger", 1)
        stream = read.json(str(self.home / "source")).withColumn("t", F.timestamp_seconds("t"))
        writer = self.build(stream).writeStream.outputMode(self.mode).trigger(processingTime="0 seconds")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self.query = writer.start(str(self.home / "out")) if self.files else writer.foreachBatch(sink).start()
        return self

    def add(self, batch: int) -> None:
        (self.home / "staged").write_text("\n".join(map(json.dumps, batch_rows(batch))))
        (self.home / "staged").rename(self.home / "source" / f"{batch:04}.json")

    def feed(self, *batches: int) -> None:
        for batch in batches:
            filled = len(self.filled)
            self.add(batch)
            if self.endless:
                self._await(filled + 1)
            else:
                self.query.processAllAvailable()

    def _await(self, batches_with_data: int) -> None:
        eventually(lambda: len(self.filled) >= batches_with_data or not self.query.isActive)
        assert self.query.isActive, self.query.exception()

    @property
    def filled(self) -> list[Any]:
        return [rows for _, rows in sorted(self.rows.items()) if rows]

    def committed(self) -> dict[Path, bytes]:
        """What a stranger must leave as it is."""
        files = [
            path
            for folder in ("commits", "state", "_skewless")
            for path in (self.checkpoint / folder).rglob("*")
        ]
        return {path: path.read_bytes() for path in files if path.is_file()}

    def assert_moved(self, *swaps: skewless.Swap, in_files: bool = False) -> None:
        """State did move in these swaps' batches, carried by tasks or in files. Spark tells of a committed
        batch a little later."""
        paths = [self.checkpoint / "_skewless" / "swaps" / str(swap.batch) for swap in swaps]
        eventually(lambda: all(path.exists() for path in paths))
        records = [json.loads(path.read_text()) for path in paths]
        assert [record["epoch"] for record in records] == [swap.epoch for swap in swaps]
        assert all(record["rows"] > 0 for record in records), records
        assert all((record["files"] > 0) == in_files for record in records), records
        moves = self.checkpoint / "_skewless" / "moves"
        eventually(lambda: not moves.exists() or not list(moves.iterdir()))


def eventually(holds: Callable[[], Any], seconds: int = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


OPERATORS: dict[str, tuple[Callable[[DataFrame], DataFrame], dict[str, Any]]] = {
    "applyInPandasWithState": (totals, {}),
    "applyInPandasWithState, event-time time-out": (time_outs, {"mode": "append"}),
    "transformWithStateInPandas, value, list and map": (lambda df: processed(df, Variables(), "None"), {}),
    "transformWithStateInPandas, timers": (
        lambda df: processed(df.withWatermark("t", "20 seconds"), Timers(), "EventTime"),
        {},
    ),
    "transformWithStateInPandas, time to live": (
        lambda df: processed(df, Variables(HOUR_MS), "ProcessingTime"),
        {"endless": True},
    ),
}


def swap_and_feed(balancer: skewless.Balancer, swapped: Run, hashes: list[int]) -> None:
    """All batches, with every table of `SWAPS` published right before its batch has data."""
    swapped.start()
    swaps = []
    for batch in range(BATCHES):
        if batch in SWAPS:
            swaps.append(balancer.publish(swapped.query, table(hashes, SWAPS[batch])))
        swapped.feed(batch)
    swapped.assert_moved(*swaps)
    swapped.query.stop()
