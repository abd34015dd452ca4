"""State follows its key on real executors: every query gives, batch by batch, the rows that plain Spark gives.

Plain is Spark's own RocksDB provider and no table. `StateSwapSuite` does the same for the operators of the JVM; here are Python's
operators, restarts, killed executors, and sessions that must not touch a checkpoint of ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import psutil
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import skewless
from integration.test_faults import executor_processes
from skewless.errors import QueryError
from skewless.session import PROVIDER, PROVIDER_KEY

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # executors cannot import it

N = 4
BATCHES = 6
SWAPS = {1: 1, 3: 2, 4: 0}  # batch -> table: keys move, others move and some return, all return
CONF = {
    "spark.sql.shuffle.partitions": str(N),
    "spark.sql.files.maxPartitionBytes": "1500",  # several map tasks a batch
    "spark.task.maxFailures": "8",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # executors live too short for more compilation to pay
}
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HOUR_MS = 3_600_000

Rows = list[tuple[Any, ...]]


def batch_rows(batch: int) -> list[dict[str, Any]]:
    """Rows of a batch: 30 keys, the lower the hotter, and null; times advance, so that time-outs and timers fire."""
    random = Random(batch)
    keys = [None if random.randrange(20) == 0 else f"k{min(random.randrange(30), random.randrange(30))}" for _ in range(60)]
    return [{"k": k, "v": batch * 1000 + i, "t": batch * 30 + random.randrange(40)} for i, k in enumerate(keys)]


def table(hashes: list[int], by: int) -> skewless.Table:
    """Moves two thirds of the key hashes; `by` varies which and where, and 0 is plain hashing."""
    return skewless.Table(N, {h: (h + by) % N for h in hashes if by and h // 7 % 3 != by})


@pytest.fixture(scope="module")
def hashes(spark: SparkSession) -> list[int]:
    keys = spark.createDataFrame([(row["k"],) for batch in range(BATCHES) for row in batch_rows(batch)], "k string").distinct()
    found = [row.h for row in keys.select(skewless.key_hash("k").alias("h")).collect()]
    assert all(len(table(found, by)) for by in SWAPS.values() if by)
    return found


# The queries


def totals(df: DataFrame, pause: Callable[[Any], None] = lambda key: None) -> DataFrame:
    def add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        pause(key[0])
        total = (state.get[0] if state.exists else 0) + sum(int(frame.v.sum()) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    return df.groupBy("k").applyInPandasWithState(add, "k string, total long", "total long", "update", "NoTimeout")


def time_outs(df: DataFrame) -> DataFrame:
    """A count that a time-out reports and removes."""

    def count(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]]})
            state.remove()
        else:
            rows = pd.concat(list(frames))
            state.update(((state.get[0] if state.exists else 0) + len(rows),))
            state.setTimeoutTimestamp(max(int(rows.t.max().timestamp() * 1000), state.getCurrentWatermarkMs()) + 5000)

    timed = df.withWatermark("t", "20 seconds").groupBy("k")
    return timed.applyInPandasWithState(count, "k string, n long", "n long", "append", "EventTimeTimeout")


class Variables(StatefulProcessor):
    """A value, a list and a map for each key; with a time to live Spark keeps an index of expiries beside each."""

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
        text = f"{sorted(tuple(v) for v in self.seen.get())} {sorted((tuple(k), tuple(v)) for k, v in self.by_digit.iterator())}"
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
        self.handle.registerTimer(max(int(frame.t.max().timestamp() * 1000), timerValues.getCurrentWatermarkInMs()) + 5000)
        yield pd.DataFrame({"k": [key[0]], "n": [total], "what": ["rows"]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = (self.count.get() or (-1,))[0]
        if not list(self.handle.listTimers()):
            self.count.clear()
        yield pd.DataFrame({"k": [key[0]], "n": [total], "what": [f"timer {expiredTimerInfo.getExpiryTimeInMs()}"]})

    def close(self) -> None:
        pass


def processed(df: DataFrame, processor: StatefulProcessor, time_mode: str) -> DataFrame:
    return df.groupBy("k").transformWithStateInPandas(processor, "k string, n long, what string", "update", time_mode)


def counts(df: DataFrame) -> DataFrame:
    return df.groupBy("k").count()


# A run of a query


def collect(df: DataFrame) -> Rows:
    return sorted((tuple(row) for row in df.collect()), key=str)


@dataclass
class Run:
    """One query with its own source folder and checkpoint; a batch is one file, a batch that runs again replaces its rows."""

    spark: SparkSession
    home: Path
    build: Callable[[DataFrame], DataFrame]
    mode: str = "update"
    note: Callable[[DataFrame], Any] = collect
    endless: bool = False  # in processing time, transformWithState runs batches without data for ever

    def __post_init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.checkpoint = self.home / "checkpoint"
        self.query: StreamingQuery
        (self.home / "source").mkdir()

    def start(self, provider: str = PROVIDER) -> Run:
        def sink(df: DataFrame, batch: int) -> None:
            self.rows[batch] = self.note(df)

        self.spark.conf.set(PROVIDER_KEY, provider)
        read = self.spark.readStream.schema("k string, v long, t long").option("maxFilesPerTrigger", 1)
        stream = read.json(str(self.home / "source")).withColumn("t", F.timestamp_seconds("t"))
        writer = self.build(stream).writeStream.outputMode(self.mode).foreachBatch(sink).trigger(processingTime="0 seconds")
        self.query = writer.option("checkpointLocation", str(self.checkpoint)).start()
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
        files = [path for folder in ("commits", "state", "_skewless") for path in (self.checkpoint / folder).rglob("*")]
        return {path: path.read_bytes() for path in files if path.is_file()}

    def assert_moved(self, *swaps: skewless.Swap) -> None:
        """State did move in these swaps' batches. Spark tells of a committed batch a little later."""
        paths = [self.checkpoint / "_skewless" / "swaps" / str(swap.batch) for swap in swaps]
        eventually(lambda: all(path.exists() for path in paths))
        records = [json.loads(path.read_text()) for path in paths]
        assert [record["epoch"] for record in records] == [swap.epoch for swap in swaps]
        assert all(record["rows"] > 0 for record in records), records
        eventually(lambda: not list((self.checkpoint / "_skewless" / "moves").iterdir()))


def eventually(holds: Callable[[], Any], seconds: int = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    yield lambda build, **how: Run(spark, tmp_path, build, **how)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """The same query on plain Spark, over all batches; run once for all tests that ask for it."""
    done: dict[Any, Run] = {}

    def outcome(build: Callable[[DataFrame], DataFrame], **how: Any) -> Run:
        if build not in done:
            done[build] = Run(spark, tmp_path_factory.mktemp("plain"), build, **how).start(STOCK)
            done[build].feed(*range(BATCHES))
            done[build].query.stop()
        return done[build]

    return outcome


OPERATORS: dict[str, tuple[Callable[[DataFrame], DataFrame], dict[str, Any]]] = {
    "applyInPandasWithState": (totals, {}),
    "applyInPandasWithState, event-time time-out": (time_outs, {"mode": "append"}),
    "transformWithStateInPandas, value, list and map": (lambda df: processed(df, Variables(), "None"), {}),
    "transformWithStateInPandas, timers": (lambda df: processed(df.withWatermark("t", "20 seconds"), Timers(), "EventTime"), {}),
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


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_the_rows_of_plain_spark_while_its_keys_move(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int], name: str
) -> None:
    build, how = OPERATORS[name]
    swapped = run(build, **how)
    swap_and_feed(balancer, swapped, hashes)
    expected = plain(build, **how)
    assert expected.filled
    assert swapped.filled == expected.filled
    assert how.get("endless") or swapped.rows == expected.rows


def test_two_actions_in_foreach_batch_see_the_same_state(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int]
) -> None:
    swapped = run(counts, note=lambda df: (df.count(), collect(df)))
    swap_and_feed(balancer, swapped, hashes)
    assert swapped.rows == {batch: (len(rows), rows) for batch, rows in plain(counts).rows.items()}


def test_a_swap_may_be_the_first_batch_after_a_restart(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int]
) -> None:
    swapped = run(counts).start()
    swapped.feed(0, 1)
    first = balancer.publish(swapped.query, table(hashes, 1))
    swapped.query.stop()
    with pytest.raises(QueryError, match="it has stopped"):
        balancer.publish(swapped.query, table(hashes, 2))
    swapped.start().feed(2, 3)
    second = balancer.publish(swapped.query, table(hashes, 0))
    swapped.query.stop()
    swapped.start().feed(4, 5)
    assert (first, second) == (skewless.Swap(1, 2), skewless.Swap(2, 4))
    swapped.assert_moved(first, second)
    assert swapped.rows == plain(counts).rows


def test_a_swap_batch_that_is_replayed_moves_the_same_state_again(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int]
) -> None:
    swapped = run(counts).start()
    swapped.feed(0, 1)
    first = balancer.publish(swapped.query, table(hashes, 1))
    swapped.feed(2)
    swapped.assert_moved(first)
    second = balancer.publish(swapped.query, table(hashes, 2))
    swapped.query.stop()
    commit = swapped.checkpoint / "commits" / "2"
    commit.unlink()
    commit.with_name(".2.crc").unlink(missing_ok=True)
    del swapped.rows[2]
    swapped.start().query.processAllAvailable()
    assert commit.exists(), "batch 2 was not replayed"
    swapped.feed(3, 4, 5)
    swapped.assert_moved(first, second)
    assert swapped.rows == plain(counts).rows


# Killed executors


def pause_once(marks: str) -> None:
    """In a task, once the test has armed the fault: names its executor's process and waits for the end. One task does so."""
    if not os.path.exists(f"{marks}/armed"):
        return
    try:
        mark = os.open(f"{marks}/paused", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    executor = next(p for p in psutil.Process().parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()))
    os.write(mark, str(executor.pid).encode())
    time.sleep(120)


def swap_under_fire(balancer: skewless.Balancer, swapped: Run, hashes: list[int], marks: Path) -> None:
    """Kills the executor that pauses in the swap's batch, while that batch runs."""
    swapped.start().feed(0, 1)
    swap = balancer.publish(swapped.query, table(hashes, 1))
    (marks / "armed").touch()
    swapped.add(2)
    paused = marks / "paused"
    eventually(lambda: not swapped.query.isActive or (paused.exists() and paused.read_text()))
    assert paused.exists(), swapped.query.exception()
    executor = int(paused.read_text())
    assert executor in {process.pid for process in executor_processes()}
    assert not (swapped.checkpoint / "commits" / str(swap.batch)).exists()
    os.kill(executor, signal.SIGKILL)
    swapped.query.processAllAvailable()
    assert executor not in {process.pid for process in executor_processes()}
    swapped.assert_moved(swap)
    swapped.feed(3)
    back = balancer.publish(swapped.query, table(hashes, 0))
    swapped.feed(4, 5)
    swapped.assert_moved(swap, back)


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


def test_an_executor_killed_while_it_maps_in_a_swap_costs_nothing(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int], marks: Path
) -> None:
    folder = str(marks)

    @F.udf("string", useArrow=False)
    def passing(key: str | None) -> str | None:
        pause_once(folder)
        return key

    swapped = run(lambda df: counts(df.withColumn("k", passing("k"))))
    swap_under_fire(balancer, swapped, hashes, marks)
    assert swapped.rows == plain(counts).rows


def test_an_executor_killed_while_it_updates_moved_state_costs_nothing(
    spark: SparkSession,
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    hashes: list[int],
    marks: Path,
) -> None:
    folder = str(marks)
    keys = spark.createDataFrame([(row["k"],) for row in batch_rows(2)], "k string").distinct()
    moved = {r.k for r in keys.select("k", skewless.key_hash("k").alias("h")).collect() if r.h in dict(table(hashes, 1))}

    def pause(key: str | None) -> None:
        if key in moved:
            pause_once(folder)

    swapped = run(lambda df: totals(df, pause))
    swap_under_fire(balancer, swapped, hashes, marks)
    assert swapped.rows == plain(totals).rows


# Sessions and tools that must not touch a checkpoint of ours

STRANGER = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import skewless.jar, skewless.session
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
{builder}
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
stream = spark.readStream.schema("k string, v long, t long").option("maxFilesPerTrigger", 1).json({source!r})
writer = stream.groupBy("k").count().writeStream.outputMode("update").format("noop")
query = writer.option("checkpointLocation", {checkpoint!r}).start()
try:
    query.processAllAvailable()
    print("RAN")
except Exception:
    print("FAILED", query._jsq.exception().get().cause().toString())
"""
JAR_ONLY = """
builder = builder.config("spark.jars", str(skewless.jar.jar_path()))
builder = builder.config(skewless.session.PROVIDER_KEY, skewless.session.PROVIDER)
"""


def moved_and_stopped(balancer: skewless.Balancer, swapped: Run, hashes: list[int]) -> None:
    """Two batches, the second under a table, which stays in force."""
    swapped.start().feed(0)
    swap = balancer.publish(swapped.query, table(hashes, 1))
    swapped.feed(1)
    swapped.assert_moved(swap)
    swapped.query.stop()


def test_a_session_without_the_extension_or_the_jar_cannot_go_on_with_moved_state(
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    hashes: list[int],
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    swapped = run(counts)
    moved_and_stopped(balancer, swapped, hashes)
    committed = swapped.committed()
    swapped.add(2)
    for builder, message in ((JAR_ONLY, "was not planned by Skewless"), ("", f"ClassNotFoundException: {PROVIDER}")):
        script = STRANGER.format(builder=builder, source=str(swapped.home / "source"), checkpoint=str(swapped.checkpoint))
        out = run_python(script).stdout
        assert out.startswith("FAILED")
        assert message in out
        assert swapped.committed() == committed
    swapped.start().query.processAllAvailable()
    back = balancer.publish(swapped.query, table(hashes, 0))
    swapped.feed(3, 4, 5)
    swapped.assert_moved(back)
    assert swapped.rows == plain(counts).rows


def test_sparks_offline_repartition_is_refused_and_the_offset_it_leaves_stops_the_query_until_it_is_removed(
    spark: SparkSession, balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int]
) -> None:
    swapped = run(counts)
    moved_and_stopped(balancer, swapped, hashes)
    committed = swapped.committed()
    with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
        spark._streamingCheckpointManager.repartition(str(swapped.checkpoint), 2 * N)
    left = swapped.checkpoint / "offsets" / "2"  # Spark writes the offsets of its repartition before it looks at the provider
    assert left.exists()
    with pytest.raises(Exception, match="UNFINISHED_REPARTITION"):
        swapped.start().query.processAllAvailable()
    assert swapped.committed() == committed
    left.unlink()
    left.with_name(".2.crc").unlink(missing_ok=True)
    swapped.start().feed(2, 3)
    back = balancer.publish(swapped.query, table(hashes, 0))
    swapped.feed(4, 5)
    swapped.assert_moved(back)
    assert swapped.rows == plain(counts).rows
