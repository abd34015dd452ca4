"""What every example does beside its own idea: a session, waits that stand for work, and plain Spark beside
Skewless in turns."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not know this folder
SLOTS = 8

Way = Callable[[SparkSession, int, float], list[tuple[Any, ...]]]


def compare(what: str, plain: Way, levelled: Way) -> None:
    """Runs both ways in turns, the first round to warm up, and prints what was gained."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--wait-ms", type=float, default=1.0, help="of each row, stands for work")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    spark = _session()
    seconds: dict[str, list[float]] = {"plain": [], "Skewless": []}
    for number in range(args.rounds + 1):
        results = []
        for name, way in (("plain", plain), ("Skewless", levelled)):
            before = time.perf_counter()
            results.append(way(spark, args.rows, args.wait_ms / 1000))
            seconds[name] += [time.perf_counter() - before] if number else []
        assert results[0] == results[1], "the two ways differ"
    ratios = [one / other for one, other in zip(*seconds.values(), strict=True)]
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(
        f"{what}: plain {medians['plain']:.1f} s, Skewless {medians['Skewless']:.1f} s, "
        f"{statistics.median(ratios):.2f} times shorter [{min(ratios):.2f} - {max(ratios):.2f}], "
        f"{len(results[0])} rows the same"
    )
    spark.stop()


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.sql.shuffle.partitions", SLOTS)
    builder = builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def waiting(seconds: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: passes rows on, and waits for each."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(seconds * batch.num_rows)
            yield batch

    return wait


def by_key(partial: Callable[[pa.Table], pa.Table]) -> Callable[..., pa.Table]:
    """The function that plain `groupBy(key).applyInArrow` takes: the partial of all rows, behind the key."""

    def grouped(key: Any, rows: pa.Table) -> pa.Table:
        made = partial(rows)
        return made.add_column(0, "key", pa.array([key[0].as_py()] * made.num_rows, key[0].type))

    return grouped


def ordered(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in rows)
