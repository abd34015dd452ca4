"""Groups with one hot key: plain `applyInArrow`, salting by hand, and `skewless.aggregate`.

One key has 40 or 80 % of the rows, the rest are spread over 2,000 keys; or all are. Each row waits 1 ms
inside `partial`, which stands for work: there are 8 task slots (`--slots`) on fewer cores, so the cores do
not decide. Times are of the whole call, with the sample that `skewless.aggregate` counts. The ways take
turns, in every round in another order; a first round warms up and is left out. *Perfect* is rows x 1 ms /
slots, nothing else.

    plain     groupBy("k").applyInArrow with the same partial
    salted    groupBy("k", salt).applyInArrow(partial), then groupBy("k").applyInArrow(merge); a salt per slot
              for all keys
    skewless  skewless.aggregate

The last lines have no wait: a million rows on uniform keys, and a sum beside Spark's own on 80 % on one key.

    python bench/aggregates.py
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from skewless.operators.aggregates import totals

KEYS = 2000
SCHEMA = "n long, s long"


def main() -> None:
    args = _arguments()
    spark = _session(args.slots)
    with tempfile.TemporaryDirectory(prefix="skewless-aggregates-") as folder:
        print(f"{args.rows:,d} rows, {args.slots} slots, {args.rounds} rounds, 1 ms a row")
        print(
            "| keys | perfect s | plain s | salted s | Skewless s | plain / Skewless | salted / Skewless "
            "| perfect / Skewless | same rows |\n|---|---:|---:|---:|---:|---:|---:|---:|---|",
            flush=True,
        )
        for share in (0.4, 0.8, 0.0):
            df = _rows(spark, folder, args.rows, share, args.slots)
            ways = {"plain": _plain, "salted": _salted(args.slots), "skewless": _skewless}
            _compare(df, share, ways, args.rounds, args.rows / args.slots / 1000, 0.001)
        print("\nno wait, 1,000,000 rows")
        print(
            "| keys | other way | other s | Skewless s | other / Skewless | same rows |\n"
            "|---|---|---:|---:|---:|---|"
        )
        uniform = _rows(spark, folder, 1_000_000, 0.0, args.slots)
        _compare(uniform, 0.0, {"plain": _plain, "skewless": _skewless}, args.rounds, None, 0.0)
        hot = _rows(spark, folder, 1_000_000, 0.8, args.slots)
        _compare(hot, 0.8, {"Spark's sum": _builtin, "skewless": _totals}, args.rounds, None, 0.0)
    spark.stop()


def _session(slots: int) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{slots}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", slots)
    builder = builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _rows(spark: SparkSession, folder: str, rows: int, share: float, slots: int) -> DataFrame:
    hot = f"abs(hash(id)) % 1000 < {1000 * share}"
    df = spark.range(0, rows, 1, slots).selectExpr(
        f"if({hot}, 0, 1 + abs(xxhash64(id)) % {KEYS}) as k", "id as v"
    )
    path = f"{folder}/{rows}-{share}"
    df.write.parquet(path)
    return spark.read.parquet(path)


def _partial(wait: float) -> Callable[[pa.Table], pa.Table]:
    def partial(rows: pa.Table) -> pa.Table:
        time.sleep(wait * rows.num_rows)
        return pa.table({"n": [rows.num_rows], "s": [pc.sum(rows["v"]).as_py()]})

    return partial


def _merge(partials: pa.Table) -> pa.Table:
    return pa.table({name: [pc.sum(partials[name]).as_py()] for name in ("n", "s")})


def _grouped(function: Callable[[pa.Table], pa.Table]) -> Callable[..., pa.Table]:
    def grouped(key: Any, rows: pa.Table) -> pa.Table:
        return function(rows).add_column(0, "k", pa.array([key[0].as_py()], pa.int64()))

    return grouped


def _plain(df: DataFrame, wait: float) -> DataFrame:
    return df.groupBy("k").applyInArrow(_grouped(_partial(wait)), f"k long, {SCHEMA}")


def _salted(salts: int) -> Callable[[DataFrame, float], DataFrame]:
    def salted(df: DataFrame, wait: float) -> DataFrame:
        dealt = df.withColumn("salt", F.pmod(F.xxhash64("v"), F.lit(salts)))
        first = dealt.groupBy("k", "salt").applyInArrow(_grouped(_partial(wait)), f"k long, {SCHEMA}")
        return first.groupBy("k").applyInArrow(_grouped(_merge), f"k long, {SCHEMA}")

    return salted


def _skewless(df: DataFrame, wait: float) -> DataFrame:
    return skewless.aggregate(df, "k", partial=_partial(wait), merge=_merge, schema=SCHEMA)


def _builtin(df: DataFrame, wait: float) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def _totals(df: DataFrame, wait: float) -> DataFrame:
    return skewless.aggregate(df, "k", using=totals("v")).toDF("k", "n", "s")


def _compare(
    df: DataFrame,
    share: float,
    ways: dict[str, Callable[[DataFrame, float], DataFrame]],
    rounds: int,
    perfect: float | None,
    wait: float,
) -> None:
    names = list(ways)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    digests = set()
    for number in range(rounds + 1):
        for turn in range(len(names)):
            name = names[(number + turn) % len(names)]
            before = time.perf_counter()
            rows = ways[name](df, wait).collect()
            taken = time.perf_counter() - before
            digests.add(tuple(sorted(map(tuple, rows))))
            if number:
                seconds[name].append(taken)
    times = {name: np.array(taken) for name, taken in seconds.items()}
    keys = f"{share:.0%} on one" if share else "uniform"
    cells = [f"{np.median(times[name]):.2f}" for name in names]
    cells += [_spread(times[name] / times["skewless"]) for name in names[:-1]]
    lead = [keys, f"{perfect:.2f}"] if perfect else [keys, names[0]]
    if perfect:
        cells.append(f"{perfect / np.median(times['skewless']):.2f}")
    print(f"| {' | '.join([*lead, *cells])} | {'yes' if len(digests) == 1 else 'NO'} |", flush=True)


def _spread(ratios: Any) -> str:
    low, median, high = np.percentile(ratios, [25, 50, 75])
    return f"{median:.2f} [{low:.2f} - {high:.2f}]"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="groups with a hot key: plain, salted, skewless.aggregate")
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
