"""Real keyed streams through a stateful query, several ways side by side on the same rows.

Each parquet file of `--data` is replayed as micro-batches through `flatMapGroupsWithState` on a local cluster
with 8 task slots. Each row waits, which stands for work: so the machine's cores do not decide. With `--burn`
each row takes processor time instead, which is honest only with as many `--slots` as there are cores. The
arms take turns, batch by batch; the first batches, in which the loop has seen nothing yet, are left out. An
arm is a way and the number of partitions as a multiple of the slots:

    plain:1 plain:4     plain Spark, with as many partitions as slots, or 4 times as many
    past:1 past:4       `skewless.balance(spark)`
    ahead:1             `skewless.balance(spark, look_ahead=True)`

and of each is told:

    rows      rows done in the time in which the slots do the partitions in order, over what level slots would
              have done
    time      the same in time: what a level batch's waits take, over what the batch took, with quartiles
    best      batch time of the best plain arm / this arm's: the ratio of each round, median and quartiles
    clock     how far predicted batch times were off, median (Skewless only)

Above them: `bound`, what the hottest key alone allows, for it cannot be in two places; and `past`, what a
table can reach that is made anew for each batch from exact counts of all batches before it, with all keys
free to move.

    python bench/streams.py --data DIR --arms plain:1 plain:4 past:1 past:4 --json streams.jsonl
    python bench/streams.py --data DIR --burn --slots 2
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import skewless
from skewless.control.slots import Slots
from skewless.spark.session import PROVIDER, PROVIDER_KEY

SLOTS = 8
SETTLED = 3
ENTRIES = 3000
WAYS = ("plain", "past", "ahead")
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BENCH_JAR = Path(__file__).parent / "jvm" / "target" / "scala-2.13"


def main() -> None:
    args = _arguments()
    spark = _session(args.slots)
    work = "take processor time for" if args.burn else "wait"
    print(f"{args.batches} batches, {args.slots} slots, the rows of a level batch {work} {args.seconds:g} s")
    for name, keys in _streams(args):
        with tempfile.TemporaryDirectory(prefix="skewless-streams-") as folder:
            _compare(spark, name, np.array_split(keys, args.batches), Path(folder), args)
    spark.stop()


def _session(slots: int = SLOTS) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = sorted(BENCH_JAR.glob("skewless-bench_2.13-*.jar"))
    if not jars:
        raise SystemExit("the benchmark's query is not built. Run `build/sbt benchJvm/package` first.")
    builder = SparkSession.builder.master(f"local-cluster[{slots // 2},2,1024]")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.executor.memory", "1g").config("spark.jars", str(jars[-1]))
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _streams(args: argparse.Namespace) -> Iterator[tuple[str, NDArray[Any]]]:
    count = args.rows * args.batches
    if not args.only or "uniform" in args.only:
        yield "uniform", np.char.add("u", np.random.default_rng(1).integers(0, 20_000, count).astype(str))
    for path in sorted(Path(args.data).glob("*.parquet")) if args.data else ():
        if args.only and path.stem not in args.only:
            continue
        described = json.loads(path.with_suffix(".json").read_text())
        column = _key_column(described, pq.read_schema(path).names)
        rows = next(pq.ParquetFile(path).iter_batches(count, columns=[column])).column(0)
        yield path.stem, np.array(rows.cast(pa.string()).to_pylist(), dtype=object)


def _key_column(described: dict[str, Any], names: list[str]) -> str:
    """The column that the description beside the file calls the key, else the first that is not a time."""
    key = described.get("key_column") or described.get("key")
    return key if key in names else next(name for name in names if name not in ("ts", "time", "timestamp"))


@dataclass
class Arm:
    """One query over the stream, in a session of its own: the times of its batches, and what came out."""

    name: str
    folder: Path
    spark: SparkSession
    slots: int = SLOTS
    balancer: skewless.Balancer | None = None
    taken_ms: list[float] = field(default_factory=list)
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    query: StreamingQuery | None = None

    @property
    def partitions(self) -> int:
        return self.slots * int(self.name.partition(":")[2])

    @property
    def is_plain(self) -> bool:
        return self.name.startswith("plain")

    def start(self, row_micros: float, max_imbalance: float, burn: bool = False) -> None:
        (self.folder / "in").mkdir(parents=True)
        self.spark.conf.set("spark.sql.shuffle.partitions", self.partitions)
        self.spark.conf.set(PROVIDER_KEY, STOCK if self.is_plain else PROVIDER)
        if not self.is_plain:
            self.balancer = skewless.balance(
                self.spark,
                max_imbalance=max_imbalance,
                max_entries=ENTRIES,
                pace=skewless.Pace(patience=1, cooldown_seconds=0),
                look_ahead=self.name.startswith("ahead"),
            )
        bench: Any = self.spark._jvm.io.skewless.bench.WaitingTotals  # type: ignore[union-attr]
        source = bench.source(self.spark._jsparkSession, str(self.folder / "in"))
        totals = DataFrame(bench.totals(source, row_micros, burn), self.spark)
        writer = totals.writeStream.outputMode("update").foreachBatch(self._digest)
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def _digest(self, df: DataFrame, batch: int) -> None:
        """Count, sum and xor of 64-bit hashes: two runs with the same have the same rows."""
        digest = F.xxhash64("k", "n")
        sums = df.agg(F.count("*"), F.sum(digest.cast("decimal(20,0)")), F.bit_xor(digest), F.sum("n"))
        self.rows[batch] = tuple(sums.collect()[0])

    def feed(self, number: int, keys: NDArray[Any]) -> None:
        assert self.query is not None
        hidden = self.folder / f".{number}"
        pq.write_table(
            pa.table({"k": pa.array(keys, pa.string())}), hidden, row_group_size=max(1, len(keys) // 4)
        )
        hidden.rename(self.folder / "in" / f"{number:05d}.parquet")
        self.query.processAllAvailable()
        progress = next(p for p in reversed(self.query.recentProgress) if p["batchId"] == number)
        self.taken_ms.append(float(progress["durationMs"]["triggerExecution"]))

    def loads(self, hashes: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """The rows of each partition, batch by batch."""
        if self.balancer is None:
            return [np.bincount(batch % self.partitions, minlength=self.partitions) for batch in hashes]
        return [load.rows for load in self.balancer.loads(self.query)]

    def record(self) -> Any:
        """What the loop knows of the query; None with plain Spark."""
        if self.balancer is None:
            return None
        assert self.query is not None
        return next(q for q in self.balancer.status().queries if q.query_id == str(self.query.id))

    def did(self) -> str:
        record = self.record()
        if record is None:
            return ""
        error = "-" if record.model_error is None else f"{record.model_error:.0%}"
        return (
            f"{len(record.swaps)} swaps, {record.bytes_moved / 1000:.0f} kB, clock {error} off; {record.why}"
        )

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()
        if self.balancer is not None:
            self.balancer.stop()


def _compare(
    spark: SparkSession, name: str, batches: list[NDArray[Any]], folder: Path, args: argparse.Namespace
) -> None:
    hashes = _hashes(spark, batches)
    arms = [Arm(arm, folder / f"{i}", spark.newSession(), args.slots) for i, arm in enumerate(args.arms)]
    for arm in arms:
        arm.start(args.seconds * 1e6 * args.slots / len(batches[0]), args.max_imbalance, args.burn)
    for number, keys in enumerate(batches):
        for i in range(len(arms)):
            arms[(number + i) % len(arms)].feed(number, keys)
        time.sleep(0.3)  # a batch of another query comes in between, so the loop has had its turn
    _print(name, arms, hashes, args)
    for arm in arms:
        arm.stop()


def _print(name: str, arms: list[Arm], hashes: list[NDArray[Any]], args: argparse.Namespace) -> None:
    counts = [np.unique(batch, return_counts=True) for batch in hashes]
    sizes = np.array([len(batch) for batch in hashes[SETTLED:]]) / args.slots
    hottest = np.array([count.max() for _, count in counts[SETTLED:]])
    bound = sizes.sum() / np.maximum(sizes, hottest).sum()
    past = max(
        _share(_from_the_past(counts, decay, args.slots), args.slots) for decay in (0.0, 0.3, 0.6, 0.9)
    )
    print(f"\n{name}: {len(hashes[0]):,} rows per batch, bound {bound:.2f}, past {past:.2f}", flush=True)
    level = args.seconds * sizes / (len(hashes[0]) / args.slots)
    taken = {arm.name: np.array(arm.taken_ms[SETTLED:]) / 1000 for arm in arms}
    plain = [arm.name for arm in arms if arm.is_plain]
    best = min(plain, key=lambda arm: taken[arm].sum()) if plain else arms[0].name
    found: dict[str, Any] = {
        "stream": name, "slots": args.slots, "seconds": args.seconds, "burn": args.burn, "bound": bound,
        "past": past,
    }  # fmt: skip
    for arm in arms:
        share = _share(arm.loads(hashes)[SETTLED:], args.slots)
        same = "" if arm.rows == arms[0].rows else "  ROWS DIFFER"
        record = arm.record()
        found[arm.name] = {
            "rows": share, "time": list(level / taken[arm.name]), "same": arm.rows == arms[0].rows,
            "swaps": len(record.swaps) if record else 0, "clock": record.model_error if record else None,
        }  # fmt: skip
        print(
            f"  {arm.name:8s} rows {share:.2f}  time {level.sum() / taken[arm.name].sum():.2f} "
            f"{_spread(level / taken[arm.name])}  {best} / this {_spread(taken[best] / taken[arm.name])}  "
            f"{arm.did()}{same}",
            flush=True,
        )
    if args.json:
        with args.json.open("a") as out:
            out.write(json.dumps(found) + "\n")


def _spread(ratios: NDArray[Any]) -> str:
    low, median, high = np.percentile(ratios, [25, 50, 75])
    return f"{median:.2f} [{low:.2f} - {high:.2f}]"


def _share(loads: list[NDArray[Any]], count: int = SLOTS) -> float:
    """Rows done in the time in which the slots do the partitions, over what level slots would have done."""
    slots = Slots((count,))
    return float(
        sum(load.sum() / count for load in loads) / sum(slots.finish(load.astype(float)) for load in loads)
    )


def _hashes(spark: SparkSession, batches: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """The keys' hashes, from Spark."""
    names, codes = np.unique(np.concatenate(batches).astype(str), return_inverse=True)
    keys = spark.createDataFrame(pa.table({"k": names.tolist()}).to_pandas())
    found = keys.select("k", skewless.key_hash("k").alias("h")).toPandas().set_index("k")["h"]
    hashes = found.loc[names].to_numpy()[codes]
    return np.split(hashes, np.cumsum([len(batch) for batch in batches])[:-1])


def _from_the_past(counts: list[tuple[Any, Any]], decay: float, slots: int) -> list[NDArray[Any]]:
    """Loads of each batch under a table that spreads its heaviest keys, as the batches before had them, from
    scratch."""
    keys, at = np.unique(np.concatenate([k for k, _ in counts]), return_inverse=True)
    rows = np.zeros((len(counts), len(keys)))
    rows[np.repeat(np.arange(len(counts)), [len(k) for k, _ in counts]), at] = np.concatenate(
        [c for _, c in counts]
    )
    expected, loads = np.zeros(len(keys)), []
    for number, batch in enumerate(rows):
        if number >= SETTLED:
            loads.append(np.bincount(_spread_out(keys, expected, slots), weights=batch, minlength=slots))
        expected = batch if number == 0 else decay * expected + (1 - decay) * batch
    return loads


def _spread_out(keys: NDArray[Any], rows: NDArray[Any], slots: int) -> NDArray[Any]:
    targets = np.mod(keys, slots)
    heavy = np.argsort(-rows, kind="stable")[:ENTRIES]
    rest = rows.copy()
    rest[heavy] = 0
    heap = [(load, p) for p, load in enumerate(np.bincount(targets, weights=rest, minlength=slots))]
    heapq.heapify(heap)
    for key in heavy[rows[heavy] > 0]:
        load, p = heapq.heappop(heap)
        targets[key] = p
        heapq.heappush(heap, (load + rows[key], p))
    return targets


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="real streams, plain and balanced, against the perfect balance"
    )
    parser.add_argument(
        "--data", help="a folder of parquet files, each with a JSON beside it; without it uniform keys only"
    )
    parser.add_argument("--only", nargs="+", help="names of streams")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument(
        "--rows",
        type=int,
        default=50_000,
        help="of a batch at most; a short stream is cut into the batches it has",
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="that the rows of a level batch wait, or work"
    )
    parser.add_argument("--burn", action="store_true", help="rows take processor time instead of waiting")
    parser.add_argument("--slots", type=int, default=SLOTS, help="task slots, two per executor")
    parser.add_argument("--json", type=Path, help="a file to which a line of figures per stream is added")
    parser.add_argument("--max-imbalance", type=float, default=0.03)
    parser.add_argument(
        "--arms",
        nargs="+",
        default=["plain:1", "plain:4", "past:1", "past:4"],
        metavar="WAY:MULTIPLE",
        help=f"of the ways {', '.join(WAYS)}",
    )
    args = parser.parse_args()
    if args.slots < 2 or args.slots % 2:
        parser.error(f"--slots {args.slots}: give an even number, since an executor has two")
    for arm in args.arms:
        way, _, multiple = arm.partition(":")
        if way not in WAYS or not multiple.isdecimal() or int(multiple) < 1:
            parser.error(f"{arm!r} is no arm. Give a way ({', '.join(WAYS)}), a colon and a whole number.")
    return args


if __name__ == "__main__":
    main()
