"""Splits under real faults on real executors: a killed executor, a straggler that is run twice. No row lost,
none doubled.

The oracle is an order-free checksum of the input; each test asserts that its fault really fired.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import skewless
from integration.conftest import ROOT

N = 12
ROWS = 60_000
CONF = {"spark.task.maxFailures": "8"}


def source(spark: SparkSession, mappers: int) -> DataFrame:
    """Two thirds of the rows have one of two keys; those keys are split over all partitions."""
    return spark.range(0, ROWS, 1, mappers).selectExpr(
        "if(id % 3 = 0, id % 1000, -(id % 2) - 1) as k", "id as v"
    )


def split(df: DataFrame) -> DataFrame:
    hot = df.filter("k < 0").select(skewless.key_hash("k").alias("h")).distinct().collect()
    assert len(hot) == 2
    return skewless.repartition(df, N, "k", table=skewless.Table(N, {row.h: tuple(range(N)) for row in hot}))


def checksum(df: DataFrame) -> Row:
    """The same for the same rows in any order and place; a lost, doubled or changed row shows."""
    row_hash = F.xxhash64("k", "v").cast("decimal(38,0)")
    found = df.agg(
        F.count("*"), F.sum(row_hash), F.sum(row_hash * F.col("v")), F.bit_xor(F.xxhash64("v", "k"))
    ).first()
    assert found is not None
    return found


def spread(df: DataFrame) -> set[int]:
    """Where rows of a split key are; `v` is asked for too, since a column that nobody reads is no part of a
    row's content."""
    rows = (
        df.filter("k = -1")
        .select(F.spark_partition_id().alias("p"), "v")
        .groupBy("p")
        .agg(F.sum("v"))
        .collect()
    )
    return {row.p for row in rows}


def executor_processes() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if is_executor(p)]


def is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except psutil.Error:  # ended meanwhile, or a zombie
        return False


@pytest.mark.parametrize("mappers", [3, 16], ids=["content decides", "mappers take turns"])
def test_a_killed_executor_loses_no_row(spark: SparkSession, marks: Path, mappers: int) -> None:
    routed = split(source(spark, mappers))
    expected = checksum(source(spark, mappers))
    assert len(spread(routed)) == N
    folder = str(marks)

    def kill_once(frames: Iterator[Any]) -> Iterator[Any]:
        """Kills its own executor when three other tasks of the stage have ended: their input is gone, their
        output counted."""
        import psutil as ps

        yield from frames
        done = len(os.listdir(folder))
        try:
            if done >= 3 and not os.path.exists(f"{folder}/killed"):
                os.close(os.open(f"{folder}/killed", os.O_CREAT | os.O_EXCL))
                backend = next(
                    p
                    for p in ps.Process().parents()
                    if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())
                )
                backend.send_signal(signal.SIGKILL)
                time.sleep(60)
        except FileExistsError:
            pass
        Path(f"{folder}/ended-{os.getpid()}-{time.time_ns()}").touch()

    before = {p.pid for p in executor_processes()}
    survived = checksum(routed.mapInPandas(kill_once, "k long, v long"))
    after = {p.pid for p in executor_processes()}
    assert (marks / "killed").exists(), "the fault did not fire"
    assert before - after, "no executor died"
    assert survived == expected


def test_a_straggler_run_twice_counts_once(
    run_python: Callable[..., Any], two_hosts: str, marks: Path
) -> None:
    """Spark speculates on another host only, so this one runs on two workers with addresses of their own."""
    script = Path(__file__).with_name("straggler.py").read_text()
    out = run_python(
        script, env={"MASTER": two_hosts, "MARKS": str(marks), "PYTHONPATH": f"{ROOT}/python:{ROOT}"}
    ).stdout
    assert "SAME True" in out
    attempts = sorted(path.name for path in marks.iterdir())
    assert len(attempts) >= 2, f"speculation did not fire: {attempts}"
