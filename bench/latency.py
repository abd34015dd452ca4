"""What Skewless adds to small batches, in ms: a loop that watches, a table in force, a swap, each against
plain Spark in the same run.

Every round gives the same 10,000 rows to each query, in an order that turns from round to round; a query's
time is taken less that of plain Spark in that round. "Plain again" shows the noise. In every second round the
last query has a small share of its keys moved; publishing comes before the batch and is told apart. State is
as in `state.py`.

    python bench/latency.py --rounds 40
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

import skewless
from state import PARTITIONS, PROVIDER, STOCK, Stream, _fill, _hashes, _record

SETTLED = 8
ENTRIES = 3_000
ARMS = ("plain", "plain again", "no loop, no table", "a loop watches", "a table of 3,000", "swaps")


def main() -> None:
    args = _arguments()
    home = Path(tempfile.mkdtemp(prefix="skewless-latency-"))
    spark = _session()
    rng = np.random.default_rng(7)
    hashes = np.unique(_hashes(spark, np.arange(args.keys)))
    try:
        streams = {name: _stream(spark, home, name, args) for name in ARMS}
        balancer = skewless.balance(spark, policy=None)
        balancer.publish(streams["a table of 3,000"].query, _moves(rng, hashes, ENTRIES))
        taken: dict[str, list[int]] = {name: [] for name in ARMS}
        published, swaps = [], []
        for number in range(args.rounds + SETTLED):
            keys = rng.integers(0, args.keys, args.rows)
            if number % 2:
                started = time.perf_counter()
                moves = _moves(rng, hashes, int(len(hashes) * args.share))
                swaps.append(balancer.publish(streams["swaps"].query, moves).batch)
                published.append((time.perf_counter() - started) * 1000)
            for name in np.roll(ARMS, number):
                taken[name].append(streams[name].batch(keys, args.bytes))
        records = [_record(streams["swaps"].checkpoint, batch) for batch in swaps[SETTLED // 2 :]]
        _print(args, taken, published, records)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)


def _session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "4g")
    builder = builder.config("spark.sql.shuffle.partitions", PARTITIONS)
    state = "spark.sql.streaming.stateStore"
    builder = builder.config(f"{state}.rocksdb.changelogCheckpointing.enabled", "true")
    builder = builder.config(f"{state}.minDeltasForSnapshot", 1_000)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _stream(spark: SparkSession, home: Path, name: str, args: argparse.Namespace) -> Stream:
    """In a session of its own, so that a loop over one of them leaves the others alone."""
    session = spark if name in ("a table of 3,000", "swaps") else spark.newSession()
    provider = STOCK if name.startswith("plain") else str(spark.conf.get(PROVIDER))
    stream = Stream(session, home, name.replace(" ", "-"), provider)
    if name == "a loop watches":
        skewless.balance(session, max_imbalance=1_000.0)
    _fill(stream, args.keys, args.bytes)
    return stream


def _moves(rng: np.random.Generator, hashes: np.ndarray, count: int) -> skewless.Table:
    moved = rng.choice(hashes, min(count, len(hashes)), replace=False)
    return skewless.Table.of_moves(PARTITIONS, moved, rng.integers(0, PARTITIONS, len(moved)))


def _print(
    args: argparse.Namespace,
    taken: dict[str, list[int]],
    published: list[float],
    records: list[dict[str, int]],
) -> None:
    plain = np.array(taken.pop("plain")[SETTLED:])
    at_swap = np.arange(SETTLED, SETTLED + len(plain)) % 2 == 1
    print(
        f"{args.rows:,} rows, {args.keys:,} keys, {PARTITIONS} partitions, {len(plain)} rounds; plain "
        f"Spark's batch {np.median(plain):,.0f} ms; more than plain in the same round, ms: median [quartiles]"
    )
    every = np.full(len(plain), True)
    for name, times in taken.items():
        more = np.array(times[SETTLED:]) - plain
        parts = {"between two swaps": ~at_swap, "a swap": at_swap} if name == "swaps" else {name: every}
        for part, of in parts.items():
            ratios = (more + plain) / plain
            print(f"  {part:24s} {_spread(more[of])}   ratio {_spread(ratios[of], 2)}")
    moved = statistics.median(record["rows"] for record in records)
    export = statistics.median(record["exportMs"] for record in records)
    files = sum(record.get("files", -1) for record in records)
    print(
        f"  publishing, before the batch: {_spread(np.array(published[SETTLED // 2 :]))} ms; a swap moves "
        f"{moved:,.0f} rows, export {export:.0f} ms, {files} files in {len(records)} swaps"
    )


def _spread(values: np.ndarray, digits: int = 0) -> str:
    low, median, high = np.percentile(values, [25, 50, 75])
    return f"{median:5.{digits}f} [{low:.{digits}f} - {high:.{digits}f}]"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=50, help="of the state of one key")
    parser.add_argument("--share", type=float, default=0.05, help="of the keys that a swap moves")
    return parser.parse_args()


if __name__ == "__main__":
    main()
