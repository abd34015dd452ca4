"""Would it pay to route a batch after its map stage, from exact counts by bucket? The trial behind
`docs/design/0005-late-routing.md`, in three parts that need no such routing:

    cost      CPU of map and reduce tasks of an exchange of n x v buckets over those of a routed one, in turn
              in one run; reading one run of buckets per partition, or more when buckets have moved
    swap      how much longer a batch with a swap takes than its neighbours, by waits alone, on 8 slots
    replay    the streams' batches under each way of deciding, by counts: rows done in the time of the slots
              over level ones, how often tables change, what of the state is scanned and moved for it

    python bench/late.py cost
    python bench/late.py swap
    python bench/late.py replay --data DIR
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

import skewless
from streams import BENCH_JAR, SETTLED, SLOTS, Arm, _hashes, _session, _share, _streams

TRIGGER, TARGET = 1.1, 1.05


def main() -> None:
    args = _arguments()
    {"cost": _cost, "swap": _swap, "replay": _replay}[args.part](args)


# -- cost ------------------------------------------------------------------------------------------------


def _cost(args: argparse.Namespace) -> None:
    jar = str(sorted(BENCH_JAR.glob("skewless-bench_2.13-*.jar"))[-1])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.jars", jar)
    builder = builder.config("spark.sql.adaptive.enabled", "false").config("spark.driver.memory", "3g")
    builder = builder.config("spark.shuffle.sort.bypassMergeThreshold", args.bypass)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    bench: Any = spark._jvm.org.apache.spark.sql.skewless.bench.BucketCost  # type: ignore[union-attr]
    for rows, rounds in ((10_000, 4 * args.rounds), (1_000_000, args.rounds)):
        for n in args.partitions:
            _print_cost(rows, n, list(bench.measure(spark._jsparkSession, rows, n, rounds)))
    spark.stop()


def _print_cost(rows: int, n: int, lines: list[str]) -> None:
    taken: dict[str, list[NDArray[Any]]] = {}
    for line in lines:
        name, *figures = line.split("|")
        assert int(figures.pop()) == rows, line
        taken.setdefault(name, []).append(np.array(figures, dtype=float))
    base = np.array(taken["routed"])
    print(f"\n{rows:,} rows, n = {n}, {len(base)} rounds; over routed: median [quartiles]; last: ms, median")
    print(f"  {'':30s}{'map CPU':22s}{'reduce CPU':22s}{'CPU of the JVM':22s}{'wall':22s}wall, JVM CPU")
    for name, measured in taken.items():
        columns = [_spread(ratio) for ratio in (np.array(measured) / base).T]
        ms = np.median(np.array(measured), axis=0)
        print(f"  {name:30s}{''.join(f'{c:22s}' for c in columns)}{ms[3]:.0f}, {ms[2]:.0f}", flush=True)


def _spread(ratios: NDArray[Any]) -> str:
    low, median, high = np.percentile(ratios, [25, 50, 75])
    return f"{median:.2f} [{low:.2f} - {high:.2f}]"


# -- swap ------------------------------------------------------------------------------------------------


def _swap(args: argparse.Namespace) -> None:
    spark = _session()
    random = np.random.default_rng(3)
    keys = [
        np.char.add("u", random.integers(0, args.keys, args.rows).astype(str)).astype(object)
        for _ in range(args.batches)
    ]
    with tempfile.TemporaryDirectory(prefix="skewless-late-") as folder:
        hashes = np.unique(np.concatenate(_hashes(spark, keys)))
        arm = Arm("past:1", Path(folder) / "arm", spark.newSession())
        arm.start(args.seconds * 1e6 * SLOTS / args.rows, 0.03)
        assert arm.balancer is not None
        assert arm.query is not None
        arm.balancer.stop()  # by hand from here on
        balancer = skewless.balance(arm.spark, policy=None)
        published, swaps = [], []
        for number, batch in enumerate(keys):
            if number >= SETTLED and number % 2:
                moved = random.choice(hashes, len(hashes) // 20, replace=False)
                table = skewless.Table.of_moves(SLOTS, moved, random.integers(0, SLOTS, len(moved)))
                started = time.perf_counter()
                balancer.publish(arm.query, table)
                published.append((time.perf_counter() - started) * 1000)
                swaps.append(number)
            arm.feed(number, batch)
        longer = [
            arm.taken_ms[b] - (arm.taken_ms[b - 1] + arm.taken_ms[b + 1]) / 2
            for b in swaps
            if args.batches // 3 <= b < args.batches - 1
        ]
        low, median, high = np.percentile(longer, [25, 50, 75])
        usual = statistics.median(arm.taken_ms[args.batches // 3 :])
        print(
            f"{len(hashes):,} keys, {args.rows:,} rows and {args.seconds:g} s of waits per level batch, 5 % "
            f"of the keys moved: a batch with a swap takes {median:.0f} ms [{low:.0f} - {high:.0f}] more "
            f"than the mean of its neighbours ({usual:.0f} ms), "
            f"{len(longer)} swaps; publishing {statistics.median(published):.0f} ms, before the batch"
        )
        print("all batches, ms:", [round(ms) for ms in arm.taken_ms], "swaps in", swaps)
        arm.query.stop()
        balancer.stop()
    spark.stop()


# -- replay ----------------------------------------------------------------------------------------------


@dataclass
class Replay:
    """A way of deciding, batch by batch: rows by partition, and what each change of table touches."""

    loads: list[NDArray[Any]] = field(default_factory=list)
    scanned: list[float] = field(
        default_factory=list
    )  # share of the keys so far in giving partitions, per swap
    moved: list[float] = field(default_factory=list)  # share of the keys so far that move, per swap
    runs: list[float] = field(default_factory=list)  # runs that a partition reads, per batch

    @property
    def share(self) -> float:
        return _share(self.loads)

    @property
    def swaps(self) -> float:
        return len(self.moved) / len(self.loads)

    def time(self, price: float) -> float:
        """Of a batch, swaps included, in level batches."""
        return 1 / self.share + price * self.swaps


def _replay(args: argparse.Namespace) -> None:
    spark = _session()
    streams = [
        (name, _hashes(spark, np.array_split(keys, max(SETTLED + 1, len(keys) // args.rows))))
        for name, keys in _streams(args)
    ]
    spark.stop()
    for name, hashes in streams:
        later = hashes[SETTLED:]
        hottest = sum(max(np.unique(b, return_counts=True)[1].max(), len(b) / SLOTS) for b in later)
        bound = sum(len(batch) for batch in later) / SLOTS / hottest
        plain = {
            m: _share([np.bincount(b % (SLOTS * m), minlength=SLOTS * m) for b in later])
            for m in (1, 2, 4, 8)
        }
        print(
            f"\n{name}: {len(hashes)} batches of {len(hashes[0]):,} rows, bound {bound:.2f}, "
            "plain x1, 2, 4, 8 " + " ".join(f"{share:.2f}" for share in plain.values())
        )
        for v in (8, 16, 32):
            late = _late(hashes, v, 0.0)
            print(
                f"  late v={v:2d}: {late.share:.2f}, swaps in {late.swaps:.2f} of the batches, scanning "
                f"{_mean(late.scanned):.2f} and moving {_mean(late.moved):.3f} of the keys; "
                f"runs per partition {_mean(late.runs):.1f}"
            )
        for price in args.prices:
            late, past = _late(hashes, 32, price), _past(hashes, price)
            print(
                f"  a swap takes {price:g} level batches: batch time best plain "
                f"{1 / max(plain.values()):.2f}, past {past.time(price):.2f} ({past.swaps:.2f} swaps), "
                f"late {late.time(price):.2f} ({late.swaps:.2f} swaps)",
                flush=True,
            )


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _late(hashes: list[NDArray[Any]], v: int, price: float) -> Replay:
    """From the batch's own rows by bucket; swaps where that gains more than `price`."""
    rows = [np.bincount(_bucket(batch, v), minlength=SLOTS * v) for batch in hashes]
    return _replayed(hashes, v, rows, price, TRIGGER)


def _past(hashes: list[NDArray[Any]], price: float) -> Replay:
    """From the rows by bucket of the batches before, buckets so fine that a key is nearly alone; the best of
    several memories and of several opinions on how long a swap serves."""
    v, found = 2048, []
    rows = [np.bincount(_bucket(batch, v), minlength=SLOTS * v).astype(float) for batch in hashes]
    for decay in (0.3, 0.6, 0.9):
        expected = [rows[0]]
        for batch in rows[:-1]:
            expected.append(decay * expected[-1] + (1 - decay) * batch)
        found += [_replayed(hashes, v, expected, price / serves, 1.0) for serves in (1, 3, 10)]
    return min(found, key=lambda replay: replay.time(price))


def _replayed(
    hashes: list[NDArray[Any]], v: int, known: list[NDArray[Any]], price: float, trigger: float
) -> Replay:
    replay, owner = Replay(), np.arange(SLOTS * v) // v
    seen = np.empty(0, dtype=np.int64)
    for number, batch in enumerate(hashes):
        after = _dealt(known[number], owner, price, trigger)
        seen = np.union1d(seen, batch)
        if number >= SETTLED:
            rows = np.bincount(_bucket(batch, v), minlength=SLOTS * v)
            replay.loads.append(np.bincount(after, weights=rows, minlength=SLOTS))
            changed = after != owner
            order = np.argsort(owner, kind="stable")  # the map side writes by the table in force
            replay.runs.append((1 + (np.diff(after[order]) != 0).sum()) / SLOTS)
            if changed.any():
                at = _bucket(seen, v)
                replay.scanned.append(float(np.isin(owner[at], owner[changed]).mean()))
                replay.moved.append(float(changed[at].mean()))
        owner = after
    return replay


def _bucket(hashes: NDArray[Any], v: int) -> NDArray[Any]:
    h = hashes.astype(np.int64)
    return np.mod(h, SLOTS) * v + np.mod((h & 0xFFFFFFFF) >> 16, v)


def _dealt(rows: NDArray[Any], owner: NDArray[Any], price: float, trigger: float) -> NDArray[Any]:
    """Buckets go from the heaviest partition to the lightest until none is over TARGET of the mean or nothing
    helps; the old owners if the heaviest is not over `trigger`, or if less than `price` of the mean is
    gained."""
    before, owner = owner, owner.copy()
    loads = np.bincount(owner, weights=rows, minlength=SLOTS)
    mean, heaviest = loads.mean(), loads.max()
    if heaviest <= trigger * mean:
        return before
    while loads.max() > TARGET * mean:
        giver, taker = int(loads.argmax()), int(loads.argmin())
        mine = np.flatnonzero((owner == giver) & (rows > 0))
        worst = np.maximum(loads[giver] - rows[mine], loads[taker] + rows[mine])
        if not len(mine) or worst.min() >= loads[giver]:
            break
        fits = mine[loads[taker] + rows[mine] <= TARGET * mean]
        bucket = fits[rows[fits].argmax()] if len(fits) else mine[worst.argmin()]
        owner[bucket] = taker
        loads[giver] -= rows[bucket]
        loads[taker] += rows[bucket]
    return owner if heaviest - loads.max() > price * mean else before


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["cost", "swap", "replay"])
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--bypass", type=int, default=200, help="spark.shuffle.sort.bypassMergeThreshold, of all variants"
    )
    parser.add_argument("--data")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--prices", type=float, nargs="+", default=[0.05, 0.1, 0.25])
    parser.add_argument("--keys", type=int, default=20_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
