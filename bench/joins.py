"""Joins with one hot key, on AQE's defaults, on AQE with all its settings for skew, and by `skewless.join`.

One key has `--share` of the left rows, the rest are spread over 2,000 keys; the right side has about one row
per key. Each row that the join gives waits 1 ms, which stands for work: there are 8 task slots on fewer
cores, so the machine's cores do not decide. Times are of the whole call, with the sample that `skewless.join`
counts. The three take turns, in every round in another order; a first round warms up and is left out.

    default   AQE as shipped. Partitions below 256 MB are never skewed to it, and these are
    forced    forceOptimizeSkewedJoin, with thresholds of 10 kB, so that size is never why AQE declines
    skewless  AQE as shipped, the join by skewless.join

Merging of small partitions is off for all three: they would all be merged into one. No side is broadcast.

    python bench/joins.py
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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless

SLOTS = 8
KEYS = 2000
WAIT = "java_method('java.lang.Thread', 'sleep', 1L)"
FORCED = {
    "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "10k",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "10k",
}
WAYS = ("default", "forced", "skewless")


def main() -> None:
    args = _arguments()
    spark = _session()
    with tempfile.TemporaryDirectory(prefix="skewless-joins-") as folder:
        left, right = _sides(spark, folder, args)
        print(f"{args.rows:,d} rows, {args.share:.0%} on one key, {SLOTS} slots, {args.rounds} rounds")
        print(
            "| shape | AQE default s | AQE forced s | Skewless s | default / Skewless | forced / Skewless "
            "| same rows |\n|---|---:|---:|---:|---:|---:|---|",
            flush=True,
        )
        for shape in args.only or SHAPES:
            _compare(spark, shape, left, right, args.rounds)
    spark.stop()


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", SLOTS)
    builder = builder.config("spark.sql.autoBroadcastJoinThreshold", -1)
    builder = builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _sides(spark: SparkSession, folder: str, args: argparse.Namespace) -> tuple[DataFrame, DataFrame]:
    """A tenth of the cold left keys, and of the right keys, match nothing."""
    hot = f"hash(id) % 1000 < {2000 * args.share - 1000}"  # Spark's % keeps the sign, so it is -999 to 999
    cold = f"1 + abs(xxhash64(id)) % {KEYS}"
    left = spark.range(0, args.rows, 1, SLOTS).selectExpr(f"if({hot}, 0, {cold}) as k", "id as v")
    right = spark.range(0, KEYS, 1, SLOTS).selectExpr(f"if(id = 0, 0, id + {KEYS // 10}) as k", "id as w")
    for name, df in (("left", left), ("right", right)):
        df.write.parquet(f"{folder}/{name}")
    return spark.read.parquet(f"{folder}/left"), spark.read.parquet(f"{folder}/right")


Join = Callable[..., DataFrame]


def _plain(left: DataFrame, right: DataFrame, on: str, how: str, **_: Any) -> DataFrame:
    return left.join(right, on, how)


def _joined(how: str) -> Callable[[DataFrame, DataFrame, Join], DataFrame]:
    return lambda left, right, join: _worked(join(left, right, "k", how))


def _existence(left: DataFrame, right: DataFrame, join: Join) -> DataFrame:
    """Plain: EXISTS under OR. By hand: a left join with the distinct keys and a flag."""
    if join is _plain:
        text = "select * from {left} l where exists (select 1 from {right} r where r.k = l.k) or l.v % 5 = 1"
        return _worked(left.sparkSession.sql(text, left=left, right=right))
    found = join(left, right.select("k", F.lit(True).alias("found")).distinct(), "k", "left")
    return _worked(found.where("found or v % 5 = 1").drop("found"))


def _grouped(left: DataFrame, right: DataFrame, join: Join) -> DataFrame:
    worked = _worked(join(left, right, "k", "inner", leave_to_aqe=False))
    return worked.groupBy("k").agg(F.sum("v").alias("v"), F.count("waited").alias("worked"))


def _worked(df: DataFrame) -> DataFrame:
    return df.withColumn("waited", F.expr(WAIT))


SHAPES: dict[str, Callable[[DataFrame, DataFrame, Join], DataFrame]] = {
    "inner": _joined("inner"),
    "left outer": _joined("left"),
    "full outer": _joined("full"),
    "existence": _existence,
    "join under groupBy": _grouped,
}


def _compare(spark: SparkSession, shape: str, left: DataFrame, right: DataFrame, rounds: int) -> None:
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    digests = set()
    for number in range(rounds + 1):
        for turn in range(len(WAYS)):
            way = WAYS[(number + turn) % len(WAYS)]
            taken, digest = _once(spark, shape, way, left, right)
            digests.add(digest)
            if number:
                seconds[way].append(taken)
    times = {way: np.array(taken) for way, taken in seconds.items()}
    cells = [f"{np.median(times[way]):.1f}" for way in WAYS]
    cells += [_spread(times[way] / times["skewless"]) for way in WAYS[:2]]
    print(f"| {shape} | {' | '.join(cells)} | {'yes' if len(digests) == 1 else 'NO'} |", flush=True)


def _once(
    spark: SparkSession, shape: str, way: str, left: DataFrame, right: DataFrame
) -> tuple[float, tuple[Any, ...]]:
    """The seconds of one query, and count, sum and xor of its rows' hashes."""
    for name, value in FORCED.items():
        spark.conf.set(name, value) if way == "forced" else spark.conf.unset(name)
    before = time.perf_counter()
    df = SHAPES[shape](left, right, skewless.join if way == "skewless" else _plain)
    digest = F.xxhash64(*(name for name in df.columns if name != "waited"))
    done = F.count("waited") if "waited" in df.columns else F.sum("worked")  # or Spark leaves the work out
    sums = df.agg(done, F.count("*"), F.sum(digest.cast("decimal(20,0)")), F.bit_xor(digest)).collect()[0]
    return time.perf_counter() - before, tuple(sums)


def _spread(ratios: Any) -> str:
    low, median, high = np.percentile(ratios, [25, 50, 75])
    return f"{median:.2f} [{low:.2f} - {high:.2f}]"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="joins with a hot key: AQE and skewless.join")
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--share", type=float, default=0.6, help="of the left rows that are on one key")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=SHAPES)
    return parser.parse_args()


if __name__ == "__main__":
    main()
