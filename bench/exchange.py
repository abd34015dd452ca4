"""Routed exchange against Spark's own hash exchange, interleaved in one run: ratios with their spread, never
times alone.

Two ratios: of wall time, and of the CPU time that the whole JVM took (generated code, shuffle, garbage
collection), which other work on the machine disturbs less.

Rows are generated (`spark.range`), cut by key into `--partitions`, and thrown away (`noop`), so the exchange
is most of the work. Each round runs every variant once, in an order that turns from round to round; the ratio
is taken within a round.

    python bench/exchange.py --rows 10000000 --rounds 9
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import psutil
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless

UNIFORM_KEYS = 1_000_000


def main() -> None:
    args = _arguments()
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
    )
    builder = builder.config("spark.ui.showConsoleProgress", "false").config(
        "spark.sql.adaptive.enabled", "false"
    )
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(
        f"{args.rows:,} rows, {args.partitions} partitions, {args.rounds} rounds, local[2]; ratio = to "
        "Spark's own in that round"
    )
    for keys, column in (("uniform", _uniform()), ("skewed", _skewed())):
        rows = spark.range(0, args.rows, 1, 4).select(column.alias("k"), F.col("id").alias("v"))
        variants = _variants(rows, args.partitions)
        _print(keys, _measure(variants, args.rounds, _cpu_seconds))
    spark.stop()


def _variants(rows: DataFrame, partitions: int) -> dict[str, DataFrame]:
    hashes = [
        r.h
        for r in rows.limit(200_000)
        .select(skewless.key_hash("k").alias("h"))
        .distinct()
        .limit(50_000)
        .collect()
    ]
    rng = np.random.default_rng(7)
    far = np.setdiff1d(
        rng.integers(-(1 << 31), 1 << 31, 120_000), hashes
    )  # entries that no row meets, to fill up the table
    filled = np.concatenate([np.array(hashes, dtype=np.int64), far])[:50_000]
    variants = {name: rows.repartition(partitions, "k") for name in ("Spark's own", "Spark's own again")}
    for entries in (0, 3_000, 50_000):
        hashes_in = filled[
            :entries
        ]  # each sent where hashing sends it: the look-up is paid, the loads stay comparable
        table = skewless.Table.of_moves(partitions, hashes_in, hashes_in % partitions)
        variants[f"routed, {entries:,} entries"] = skewless.repartition(rows, partitions, "k", table=table)
    return variants


def _measure(
    variants: dict[str, DataFrame], rounds: int, cpu_seconds: Callable[[], float]
) -> dict[str, list[tuple[float, float]]]:
    """(wall seconds, CPU seconds) of each round after two to warm up."""
    names = list(variants)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for turn in range(rounds + 2):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started, cpu = time.perf_counter(), cpu_seconds()
            variants[name].write.format("noop").mode("overwrite").save()
            if turn >= 2:
                taken[name].append((time.perf_counter() - started, cpu_seconds() - cpu))
        print(f"  round {turn - 1} of {rounds}" if turn >= 2 else "  warm-up", end="\r", flush=True)
    return taken


def _print(keys: str, taken: dict[str, list[tuple[float, float]]]) -> None:
    base = taken["Spark's own"]
    print(f"\n{keys + ' keys':30} CPU: median [quartiles]     wall: median [quartiles]    wall seconds")
    for name, measured in taken.items():
        columns = [
            _spread([one[i] / plain[i] for one, plain in zip(measured, base, strict=True)]) for i in (1, 0)
        ]
        print(
            f"  {name:28} {columns[0]}     {columns[1]}     "
            f"{statistics.median(wall for wall, _ in measured):5.2f}"
        )


def _spread(ratios: list[float]) -> str:
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{statistics.median(ratios):.3f} [{low:.3f} - {high:.3f}]"


def _cpu_seconds() -> float:
    """What the JVM, our only child, has used so far."""
    spent = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return sum(one.user + one.system for one in spent)


def _uniform() -> Column:
    return F.pmod(F.xxhash64("id"), F.lit(UNIFORM_KEYS))


def _skewed() -> Column:
    """Heavy-tailed keys: the key falls off as a power of a uniform number."""
    uniform = F.pmod(F.xxhash64("id"), F.lit(1 << 30)) / (1 << 30)
    return F.floor(F.pow(uniform, F.lit(6.0)) * UNIFORM_KEYS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
