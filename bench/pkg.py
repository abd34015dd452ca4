"""Throughput against the work of a row, as Figure 10(a) of the PKG paper, on Spark itself.

Rows of a Zipf stream whose hottest key has the share that the paper's WP has (9.3 %) go to 16 partitions,
each with a slot of its own, and wait there, which stands for work. Nothing is aggregated, as in the paper.
With the paper's eight workers that key has room in one: moves alone level it, and no key would be split.

    KG     df.repartition(16, "k"): plain hashing
    PKG    skewless.repartition with the table that the split policy `pkg` and Mixed make of the keys' counts
    SG     df.repartition(16): no regard to keys

Throughput is rows per second of the whole query; the arms take turns, and a first round that warms up is left
out. Counters are pairs of key and partition: what a count per key would hold.

    python bench/pkg.py
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from skewless import Limits, Snapshot, Table, policies
from skewless.policies import splits
from skewless.policies.splits.place import split_and_move
from skewless.simulate.streams import keyhash
from skewless.simulate.streams.generators import zipf_shares

SLOTS, KEYS, HOTTEST = 16, 20_000, 0.0932
Arm = Callable[[DataFrame], DataFrame]


def main() -> None:
    args = _arguments()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.adaptive.coalescePartitions.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    keys = np.random.default_rng(args.seed).choice(KEYS, args.rows, p=_shares())
    with tempfile.TemporaryDirectory(prefix="skewless-pkg-") as folder:
        file = pa.table({"k": keys, "v": np.arange(args.rows)})
        pq.write_table(file, f"{folder}/rows.parquet", row_group_size=max(1, args.rows // SLOTS))
        df = spark.read.parquet(folder)
        table = _pkg(keys)
        arms: dict[str, Arm] = {
            "KG": lambda df: df.repartition(SLOTS, "k"),
            "PKG": lambda df: skewless.repartition(df, SLOTS, "k", table=table),
            "SG": lambda df: df.repartition(SLOTS),
        }
        print(f"{args.rows:,d} rows, {len(table.split_hashes)} keys split, {args.rounds} rounds")
        for name, arm in arms.items():
            placed = arm(df).select("k", F.spark_partition_id().alias("p"))
            loads = [row["count"] for row in placed.groupBy("p").count().collect()]
            counters = placed.distinct().count()
            print(f"{name}: max / mean {SLOTS * max(loads) / sum(loads):.3f}, {counters:,d} counters")
        columns = ("ms a row", "KG rows/s", "PKG rows/s", "SG rows/s", "PKG / KG", "PKG / SG")
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        for delay in args.delays:
            _compare(df, arms, delay, args)
    spark.stop()


def _shares() -> np.ndarray:
    """Zipf, with the exponent that gives the hottest key its share."""
    low, high = 0.0, 5.0
    for _ in range(40):
        z = (low + high) / 2
        low, high = (z, high) if zipf_shares(KEYS, z)[0] < HOTTEST else (low, z)
    return np.asarray(zipf_shares(KEYS, z))


def _pkg(keys: np.ndarray) -> Table:
    names, counts = np.unique(keys, return_counts=True)
    table = Table(SLOTS)
    snapshot = Snapshot.of(table, keyhash.of_int64s(names), counts, sides="left")
    limits = Limits(max_imbalance=0.01)
    return split_and_move(snapshot, table, limits, splits.get("pkg"), policies.get("mixed")).table


def _compare(df: DataFrame, arms: dict[str, Arm], delay: float, args: argparse.Namespace) -> None:
    wait = f"java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', {int(delay * 1e6)}L)"
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(args.rounds + 1):
        order = list(arms)
        for name in order[number % 3 :] + order[: number % 3]:
            before = time.perf_counter()
            arms[name](df).select(F.expr(wait).alias("waited")).agg(F.count("*"), F.count("waited")).collect()
            if number:
                taken[name].append(time.perf_counter() - before)
    rates = {name: args.rows / np.array(seconds) for name, seconds in taken.items()}
    cells = [f"{np.median(rate):,.0f} ({rate.min():,.0f} - {rate.max():,.0f})" for rate in rates.values()]
    cells += [f"{np.median(rates['PKG'] / rates[other]):.2f}" for other in ("KG", "SG")]
    print(f"| {delay:g} | {' | '.join(cells)} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.1, 0.4, 1.0], help="ms of a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
