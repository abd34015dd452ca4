"""Running values over a hot key: Spark's own window beside `skewless.window`.

One key has 80 % of the rows, or none is hot. There is no wait: a window is Spark's own work, so at most as
many tasks gain as there are cores. Times are of the whole call, sample included, with every row written to
the noop sink. The ways take turns; a first round warms up and is left out.

    python bench/windows.py
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import skewless

KEYS = 2000


def main() -> None:
    args = _arguments()
    spark = _session(args.slots)
    print(f"{args.rows:,d} rows, {args.slots} slots, {args.rounds} rounds")
    print("| keys | plain s | Skewless s | plain / Skewless |\n|---|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory(prefix="skewless-windows-") as folder:
        for share in (0.8, 0.0):
            df = _rows(spark, folder, args.rows, share, args.slots)
            seconds: dict[str, list[float]] = {"plain": [], "skewless": []}
            for number in range(args.rounds + 1):
                for name in sorted(seconds, reverse=number % 2 == 1):
                    before = time.perf_counter()
                    made = _plain(df) if name == "plain" else skewless.window(df, "k", "t", _columns())
                    made.write.format("noop").mode("overwrite").save()
                    if number:
                        seconds[name].append(time.perf_counter() - before)
            ratios = np.array(seconds["plain"]) / np.array(seconds["skewless"])
            low, median, high = np.percentile(ratios, [25, 50, 75])
            plain, own = (np.median(seconds[name]) for name in ("plain", "skewless"))
            keys = f"{share:.0%} on one" if share else "uniform"
            print(f"| {keys} | {plain:.2f} | {own:.2f} | {median:.2f} [{low:.2f} - {high:.2f}] |", flush=True)
    spark.stop()


def _columns() -> dict[str, Column]:
    return {"n": F.row_number(), "s": F.sum("v"), "before": F.lag("v")}


def _plain(df: DataFrame) -> DataFrame:
    spec = Window.partitionBy("k").orderBy("t")
    return df.select("*", *(column.over(spec).alias(name) for name, column in _columns().items()))


def _rows(spark: SparkSession, folder: str, rows: int, share: float, slots: int) -> DataFrame:
    hot = f"pmod(hash(id), 1000) < {1000 * share}"
    key = f"if({hot}, 0, 1 + pmod(xxhash64(id), {KEYS})) as k"
    path = f"{folder}/{share}"
    made = spark.range(0, rows, 1, slots).selectExpr(key, "pmod(hash(id, 1), 1000000) as t", "id as v")
    made.write.parquet(path)
    return spark.read.parquet(path)


def _session(slots: int) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{slots}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g")
    builder = builder.config("spark.sql.shuffle.partitions", 2 * slots)
    spark = builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="windows with a hot key: Spark's own, skewless.window")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
