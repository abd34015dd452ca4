"""State follows its key while executors die and tasks run twice: every batch has the rows that plain Spark
gives.

Drivers that die, tasks that fail, lost outputs are in `StateCrashSuite` and `StateFaultSuite`; here is what
needs real executors. Each test asserts that its fault really fired.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from integration import state_run
from integration.conftest import FORMATS, ROOT
from integration.state_run import BATCHES, STOCK, N, Run, batch_rows, counts, eventually, table, totals
from integration.test_faults import executor_processes
from skewless.spark.jar import jar_path
from skewless.spark.session import PROVIDER

CONF = state_run.CONF

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # executors cannot import it


# An executor dies while it maps or reduces


def pause_once(marks: str) -> None:
    """In a task, once the test has armed the fault: names its executor's process and waits for the end. One
    task does so."""
    if not os.path.exists(f"{marks}/armed"):
        return
    try:
        mark = os.open(f"{marks}/paused", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    executor = next(
        p for p in psutil.Process().parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())
    )
    os.write(mark, str(executor.pid).encode())
    time.sleep(120)


def kill_paused(swapped: Run, marks: Path) -> None:
    """Kills the executor whose task pauses, and waits for the batch that it was in."""
    paused = marks / "paused"
    eventually(lambda: not swapped.query.isActive or (paused.exists() and paused.read_text()))
    assert paused.exists(), swapped.query.exception()
    executor = int(paused.read_text())
    assert executor in {process.pid for process in executor_processes()}
    os.kill(executor, signal.SIGKILL)
    swapped.query.processAllAvailable()
    assert executor not in {process.pid for process in executor_processes()}


def swap_under_fire(balancer: skewless.Balancer, swapped: Run, hashes: list[int], marks: Path) -> None:
    """Kills the executor that pauses in the swap's batch, while that batch runs."""
    swapped.start().feed(0, 1)
    swap = balancer.publish(swapped.query, table(hashes, 1))
    (marks / "armed").touch()
    swapped.add(2)
    kill_paused(swapped, marks)
    swapped.assert_moved(swap)
    swapped.feed(3)
    back = balancer.publish(swapped.query, table(hashes, 0))
    swapped.feed(4, 5)
    swapped.assert_moved(swap, back)


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_an_executor_killed_while_it_maps_in_a_swap_costs_nothing(
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    hashes: list[int],
    marks: Path,
    checkpoint_format: int,
) -> None:
    folder = str(marks)

    @F.udf("string", useArrow=False)
    def passing(key: str | None) -> str | None:
        pause_once(folder)
        return key

    swapped = run(lambda df: counts(df.withColumn("k", passing("k"))), checkpoint_format=checkpoint_format)
    swap_under_fire(balancer, swapped, hashes, marks)
    assert swapped.rows == plain(counts).rows


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_an_executor_killed_while_it_updates_moved_state_costs_nothing(
    spark: SparkSession,
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    hashes: list[int],
    marks: Path,
    checkpoint_format: int,
) -> None:
    folder = str(marks)
    keys = spark.createDataFrame([(row["k"],) for row in batch_rows(2)], "k string").distinct()
    moved = {
        r.k
        for r in keys.select("k", skewless.key_hash("k").alias("h")).collect()
        if r.h in dict(table(hashes, 1))
    }

    def pause(key: str | None) -> None:
        if key in moved:
            pause_once(folder)

    swapped = run(lambda df: totals(df, pause), checkpoint_format=checkpoint_format)
    swap_under_fire(balancer, swapped, hashes, marks)
    assert swapped.rows == plain(totals).rows


# An executor dies while it exports

KEYS_A_ROW = 200
KEY_BYTES = 2_000


def wide_counts(df: DataFrame) -> DataFrame:
    """Counts of 12,000 long keys, all of them in every batch: enough state that a partition's export takes a
    while."""
    keys = df.selectExpr(
        f"explode(sequence(v % 1000 * {KEYS_A_ROW}, v % 1000 * {KEYS_A_ROW} + {KEYS_A_ROW - 1})) as id"
    )
    return keys.selectExpr(f"rpad(cast(id as string), {KEY_BYTES}, 'x') as k").groupBy("k").count()


def checksum(df: DataFrame) -> Any:
    """The same for the same rows in any order; a lost, doubled or changed row shows."""
    return df.agg(F.count("*"), F.sum("count"), F.bit_xor(F.xxhash64("k", "count"))).first()


def stopped_in_export(swapped: Run, batch: int) -> psutil.Process | None:
    """An executor that has an export file open, brought to a halt; None if the batch was over before one was
    seen."""
    moves, commit = swapped.checkpoint / "_skewless" / "moves", swapped.checkpoint / "commits" / str(batch)
    executors = executor_processes()
    while not commit.exists() and swapped.query.isActive:
        if moves.exists() and any(moves.glob("*/[0-9]*")):
            for process in executors:
                process.suspend()
                if any(str(moves) in file.path for file in process.open_files()):
                    return process
                process.resume()
        time.sleep(0.002)
    return None


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_an_executor_killed_while_it_exports_costs_nothing(
    spark: SparkSession,
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    checkpoint_format: int,
) -> None:
    ids = spark.range(60 * KEYS_A_ROW).selectExpr(f"rpad(cast(id as string), {KEY_BYTES}, 'x') as k")
    hashes = [row.h for row in ids.select(skewless.key_hash("k").alias("h")).collect()]
    swapped = run(wide_counts, note=checksum, checkpoint_format=checkpoint_format).start()
    swapped.feed(0)
    batch, executor = 0, None
    while (
        executor is None and batch < BATCHES - 2
    ):  # every swap moves every key, until the killer is quick enough
        batch += 1
        swap = balancer.publish(swapped.query, skewless.Table(N, {h: (h + batch) % N for h in hashes}))
        swapped.add(batch)
        executor = stopped_in_export(swapped, swap.batch)
        if executor:
            executor.send_signal(signal.SIGKILL)
        swapped.query.processAllAvailable()
        swapped.assert_moved(swap, in_files=True)
    assert executor is not None, "no executor was seen with an export file open"
    assert executor.pid not in {process.pid for process in executor_processes()}
    back = balancer.publish(swapped.query, skewless.Table(N, {}))
    swapped.feed(*range(batch + 1, BATCHES))
    swapped.assert_moved(back, in_files=True)
    assert swapped.rows == plain(wide_counts, note=checksum).rows


# Three runs of one query


def running_totals(df: DataFrame, pause: Callable[[], None] = lambda: None) -> DataFrame:
    """The total of each key after each batch that has it, for a sink that only appends."""

    def add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        pause()
        rows = pd.concat(list(frames))
        total = (state.get[0] if state.exists else 0) + int(rows.v.sum())
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total], "last": [int(rows.v.max())]})

    return df.groupBy("k").applyInPandasWithState(
        add, "k string, total long, last long", "total long", "append", "NoTimeout"
    )


def test_plain_swapped_and_swapped_with_a_kill_in_between_write_the_same_files(
    spark: SparkSession, balancer: skewless.Balancer, run: Callable[..., Run], hashes: list[int], marks: Path
) -> None:
    def written(provider: str, swaps: bool, kill_in: int | None = None) -> list[tuple[Any, ...]]:
        """Rows of the Parquet sink; with swaps before every other batch, with an executor killed in one of
        those."""
        folder = str(marks)
        one = run(lambda df: running_totals(df, lambda: pause_once(folder)), mode="append", files=True).start(
            provider
        )
        for batch in range(BATCHES):
            if swaps and batch % 2:
                balancer.publish(one.query, table(hashes, batch // 2 + 1))
            if batch == kill_in:
                (marks / "armed").touch()
                one.add(batch)
                kill_paused(one, marks)
            else:
                one.feed(batch)
        if swaps:
            eventually(lambda: len(list((one.checkpoint / "_skewless" / "swaps").glob("[0-9]*"))) == 3)
        one.query.stop()
        return sorted((tuple(row) for row in spark.read.parquet(str(one.home / "out")).collect()), key=str)

    plain_rows = written(STOCK, swaps=False)
    assert len(plain_rows) > 100
    assert written(PROVIDER, swaps=True) == plain_rows
    assert written(PROVIDER, swaps=True, kill_in=3) == plain_rows
    assert (marks / "paused").exists()


# A slow task that is run twice


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_a_stateful_task_run_twice_in_a_swap_counts_once(
    run_python: Callable[..., Any], two_hosts: str, tmp_path: Path, marks: Path, checkpoint_format: int
) -> None:
    """Spark speculates on another host only, so this one runs on two workers with addresses of their own."""
    script = Path(__file__).with_name("state_straggler.py").read_text()
    env = {
        "MASTER": two_hosts,
        "PYTHONPATH": f"{ROOT}/python:{ROOT}",
        "HOME_FOLDER": str(tmp_path / "state"),
        "MARKS": str(marks),
    }
    found = json.loads(
        run_python(script, env=env | {"FORMAT": str(checkpoint_format)}).stdout.splitlines()[-1]
    )
    attempts = sorted(path.name for path in marks.glob("attempt-*"))
    assert len(attempts) >= 2, f"speculation did not fire: {attempts}"
    assert found["slow partition"] in found["targets"], "the slow task takes moved state"
    assert found["swapped"] == found["plain"]
    assert len(found["plain"]) == 4


# An executor with another jar


def test_an_executor_with_another_version_of_the_jar_does_not_serve(
    run_python: Callable[..., Any], two_hosts: str, tmp_path: Path
) -> None:
    ours, other = (ROOT / "VERSION").read_text().strip(), tmp_path / "other.jar"
    with zipfile.ZipFile(jar_path()) as jar, zipfile.ZipFile(other, "w") as copy:
        for entry in jar.infolist():
            data = jar.read(entry)
            if entry.filename == "META-INF/MANIFEST.MF":
                data = data.replace(
                    f"Implementation-Version: {ours}".encode(), b"Implementation-Version: 0.0.9"
                )
            copy.writestr(entry, data)
    script = f"""
import glob, os, threading, time
from pyspark.sql import SparkSession
import skewless
builder = SparkSession.builder.master({two_hosts!r}).config("spark.ui.enabled", "false")
builder = builder.config("spark.executor.memory", "512m")
spark = skewless.configure(builder.config("spark.executor.extraClassPath", {str(other)!r})).getOrCreate()
threading.Thread(target=lambda: print("COUNTED", spark.range(10).count(), flush=True), daemon=True).start()
refusal = "the driver runs Skewless {ours}, this executor 0.0.9"
while not any(refusal in open(log).read() for log in glob.glob("{tmp_path}/app-*/*/stderr")):
    time.sleep(0.5)
print("REFUSED", flush=True)
os._exit(0)  # Spark would go on trying
"""
    assert run_python(script).stdout.split() == ["REFUSED"]
