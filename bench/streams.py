"""Real keyed streams through a stateful query, plain and balanced side by side: how near each comes to the
perfect balance.

Each parquet file of `--data` is replayed as micro-batches through `flatMapGroupsWithState` on a local cluster
with a slot for each of 8 partitions. Each row waits, which stands for work: so the machine's cores do not
decide. Plain Spark and Skewless take turns, batch by batch, on the same rows; the first batches, in which the
loop has seen nothing yet, are left out.

    bound     what the hottest key alone allows: it cannot be in two places
    past      what a table can reach that is made anew for each batch, from exact counts of all batches before
              it, with all keys free to move: what the past does not tell, no table can know. The best of four
              ways to weigh the past
    plain     rows done in the time of the heaviest partition, over what level partitions would have done;
              plain Spark
    skewless  the same with `skewless.balance(spark)`
    time      of a batch, plain / Skewless, median and quartiles of the rounds

`uniform` is there for what the loop costs where nothing is to gain: its time is Skewless / plain, with plain
again / plain beside it.

    python bench/streams.py --data DIR
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
from skewless.spark.session import PROVIDER, PROVIDER_KEY

PARTITIONS = 8
SETTLED = 3
ENTRIES = 3000
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BENCH_JAR = Path(__file__).parent / "jvm" / "target" / "scala-2.13"


def main() -> None:
    args = _arguments()
    spark = _session()
    print(
        f"{args.batches} batches, {PARTITIONS} partitions, level batches wait {args.seconds:g} s; shares by "
        "rows"
    )
    print(
        f"{'stream':20s} {'rows':>7s}  bound   past  plain  skewless  swaps    moved  time            same "
        "rows",
        flush=True,
    )
    for name, keys in _streams(args):
        with tempfile.TemporaryDirectory(prefix="skewless-streams-") as folder:
            _compare(spark, name, np.array_split(keys, args.batches), Path(folder), args)
    spark.stop()


def _session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = sorted(BENCH_JAR.glob("skewless-bench_2.13-*.jar"))
    if not jars:
        raise SystemExit("the benchmark's query is not built. Run `build/sbt benchJvm/package` first.")
    builder = SparkSession.builder.master("local-cluster[4,2,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config(
        "spark.sql.shuffle.partitions", PARTITIONS
    )
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
class Run:
    """One query over the stream: the times of its batches, and what came out of each."""

    folder: Path
    balanced: bool
    taken_ms: list[float] = field(default_factory=list)
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    query: StreamingQuery | None = None

    def start(self, spark: SparkSession, wait_micros: float) -> None:
        (self.folder / "in").mkdir(parents=True)
        spark.conf.set(PROVIDER_KEY, PROVIDER if self.balanced else STOCK)
        bench: Any = spark._jvm.io.skewless.bench.WaitingTotals  # type: ignore[union-attr]
        source = bench.source(spark._jsparkSession, str(self.folder / "in"))
        totals = DataFrame(bench.totals(source, wait_micros), spark)
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


def _compare(
    spark: SparkSession, name: str, batches: list[NDArray[Any]], folder: Path, args: argparse.Namespace
) -> None:
    runs = [Run(folder / "plain", False), Run(folder / "skewless", True)]
    runs += [Run(folder / "again", False)] if name == "uniform" else []
    pace = skewless.Pace(patience=1, cooldown_seconds=0)
    hashes = _hashes(spark, batches)
    with skewless.balance(
        spark, max_imbalance=args.max_imbalance, max_entries=ENTRIES, pace=pace, look_ahead=args.look_ahead
    ) as balancer:
        for run in runs:
            run.start(spark, args.seconds * 1e6 * PARTITIONS / len(batches[0]))
        for number, keys in enumerate(batches):
            for i in range(len(runs)):
                runs[(number + i) % len(runs)].feed(number, keys)
            time.sleep(0.3)  # a batch of the other query comes in between, so the loop has had its turn
        balanced = runs[1].query
        assert balanced is not None
        loads = [load.rows for load in balancer.loads(balanced)]
        record = next(query for query in balancer.status().queries if query.query_id == str(balanced.id))
        for run in runs:
            assert run.query is not None
            run.query.stop()
    _print(name, runs, [hashes[i] for i in range(len(batches))], loads, len(record.swaps), record.bytes_moved)


def _print(name: str, runs: list[Run], hashes: list[Any], loads: list[Any], swaps: int, moved: int) -> None:
    plain, level = (np.array(run.taken_ms[SETTLED:]) for run in runs[:2])
    counts = [np.unique(batch, return_counts=True) for batch in hashes]
    bound = sum(len(h) / PARTITIONS for h in hashes[SETTLED:])
    bound /= sum(
        max(len(h) / PARTITIONS, c.max())
        for h, (_, c) in zip(hashes[SETTLED:], counts[SETTLED:], strict=True)
    )
    hashed = [np.bincount(batch % PARTITIONS, minlength=PARTITIONS) for batch in hashes]
    past = max(_share(_from_the_past(counts, decay)) for decay in (0.0, 0.3, 0.6, 0.9))
    if len(runs) > 2:
        again = np.array(runs[2].taken_ms[SETTLED:])
        times = f"{_spread(level / plain)} skewless / plain, {_spread(again / plain)} plain again / plain"
    else:
        times = _spread(plain / level)
    same = all(run.rows == runs[0].rows for run in runs)
    shares = f"{bound:5.2f}  {past:5.2f}  {_share(hashed[SETTLED:]):5.2f}  {_share(loads[SETTLED:]):8.2f}"
    did = f"{swaps:5d}  {moved / 1000:5.0f} kB  {times}  {'yes' if same else 'NO'}"
    print(f"{name:20s} {len(hashes[0]):7,d}  {shares}  {did}", flush=True)


def _spread(ratios: NDArray[Any]) -> str:
    low, median, high = np.percentile(ratios, [25, 50, 75])
    return f"{median:.2f} [{low:.2f} - {high:.2f}]"


def _share(loads: list[NDArray[Any]]) -> float:
    """Rows done in the time of the heaviest partition, over what level partitions would have done."""
    return float(sum(load.mean() for load in loads) / sum(load.max() for load in loads))


def _hashes(spark: SparkSession, batches: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """The keys' hashes, from Spark."""
    names, codes = np.unique(np.concatenate(batches).astype(str), return_inverse=True)
    keys = spark.createDataFrame(pa.table({"k": names.tolist()}).to_pandas())
    found = keys.select("k", skewless.key_hash("k").alias("h")).toPandas().set_index("k")["h"]
    hashes = found.loc[names].to_numpy()[codes]
    return np.split(hashes, np.cumsum([len(batch) for batch in batches])[:-1])


def _from_the_past(counts: list[tuple[Any, Any]], decay: float) -> list[NDArray[Any]]:
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
            loads.append(np.bincount(_spread_out(keys, expected), weights=batch, minlength=PARTITIONS))
        expected = batch if number == 0 else decay * expected + (1 - decay) * batch
    return loads


def _spread_out(keys: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    targets = np.mod(keys, PARTITIONS)
    heavy = np.argsort(-rows, kind="stable")[:ENTRIES]
    rest = rows.copy()
    rest[heavy] = 0
    heap = [(load, p) for p, load in enumerate(np.bincount(targets, weights=rest, minlength=PARTITIONS))]
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
        "--seconds", type=float, default=1.0, help="that a batch's rows wait if they are level"
    )
    parser.add_argument("--max-imbalance", type=float, default=0.03)
    parser.add_argument(
        "--look-ahead", action="store_true", help="count the keys of each batch before it is routed"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
