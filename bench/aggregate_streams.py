"""`skewless.aggregate` on a stream of uniform keys, where nothing can be gained: what it costs.

Counts and sums per key, in batches with a file per slot. The ways take turns; a first round warms up and is
left out. Times are of a whole run with `availableNow`, its start included.

    plain       applyInPandasWithState with the same sums
    one level   skewless.aggregate, no hot key named
    auto        the same with hot="auto"
    two levels  the same with a hot key named that is not there: the first level for nothing

    python bench/aggregate_streams.py
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

import skewless
from skewless.operators.aggregates import totals

SLOTS = 4
BATCHES = 3
SCHEMA = "k long, n long, s long"


def main() -> None:
    args = _arguments()
    spark = _session()
    ways: dict[str, Callable[[DataFrame], DataFrame]] = {
        "plain": _plain,
        "one level": lambda df: skewless.aggregate(df, "k", using=totals("v")),
        "auto": lambda df: skewless.aggregate(df, "k", using=totals("v"), hot="auto"),
        "two levels": lambda df: skewless.aggregate(df, "k", using=totals("v"), hot=[-1]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(prefix="skewless-aggregate-streams-") as folder:
        key = f"long(pmod(hash(id), {args.keys})) as k"
        rows = spark.range(0, args.rows * BATCHES, 1, SLOTS * BATCHES).selectExpr(key, "id as v")
        rows.write.parquet(f"{folder}/in")
        for number in range(args.rounds + 1):
            last = set()
            for turn in range(len(ways)):
                name = list(ways)[(number + turn) % len(ways)]
                taken, result = _run(spark, ways[name], folder, f"{number}-{turn}")
                last.add(result)
                if number:
                    seconds[name].append(taken)
            assert len(last) == 1, "the ways differ"
    print(f"{args.rows:,d} rows a batch, {args.keys:,d} keys, {BATCHES} batches, {args.rounds} rounds")
    print("| way | s | to plain |\n|---|---:|---:|")
    for name, taken in seconds.items():
        low, median, high = np.percentile(np.array(taken) / np.array(seconds["plain"]), [25, 50, 75])
        print(f"| {name} | {np.median(taken):.2f} | {median:.2f} [{low:.2f} - {high:.2f}] |")
    spark.stop()


def _run(
    spark: SparkSession, way: Callable[[DataFrame], DataFrame], folder: str, name: str
) -> tuple[float, frozenset[Any]]:
    stream = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", SLOTS)
    last: dict[int, tuple[Any, ...]] = {}

    def keep(batch: DataFrame, _: int) -> None:
        last.update({row[0]: tuple(row) for row in batch.collect()})

    before = time.perf_counter()
    writer = way(stream.parquet(f"{folder}/in")).writeStream.outputMode("update").foreachBatch(keep)
    writer = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
    writer.start().awaitTermination()
    return time.perf_counter() - before, frozenset(last.values())


def _plain(df: DataFrame) -> DataFrame:
    def fold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        n, s = state.get if state.exists else (0, 0)
        for frame in frames:
            n, s = n + len(frame), s + int(frame["v"].sum())
        state.update((n, s))
        yield pd.DataFrame({"k": [key[0]], "n": [n], "s": [s]})

    return df.groupBy("k").applyInPandasWithState(fold, SCHEMA, "n long, s long", "update", "NoTimeout")


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", SLOTS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="what skewless.aggregate costs on a stream of uniform keys")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
