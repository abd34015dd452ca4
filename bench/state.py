"""What moving state costs, against plain Spark in the same run: batches without a swap, batches with one, and
the same change by Spark's own offline repartition of the stopped query.

State is one row per key, a string of `--bytes` under a long (`groupBy("k").agg(max("payload"))`), kept in
RocksDB with changelog checkpoints; Spark's own snapshots, which make every tenth batch longer, are put off.
Input is parquet, one file per batch. The first swap of a JVM also loads classes and compiles code, so
a small one comes before those measured. Ratios compare batches of one run; the
machine's times mean little elsewhere.

    python bench/state.py --keys 1000000
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import skewless

PARTITIONS = 8
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def main() -> None:
    args = _arguments()
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "6g")
    )
    builder = builder.config("spark.ui.showConsoleProgress", "false").config(
        "spark.sql.shuffle.partitions", PARTITIONS
    )
    builder = builder.config("spark.skewless.table.maxEntries", 10_000_000)
    builder = builder.config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    builder = builder.config("spark.sql.streaming.stateStore.minDeltasForSnapshot", 1_000)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    home = Path(tempfile.mkdtemp(prefix="skewless-bench-"))
    try:
        if "steady" in args.parts:
            _steady(spark, home / "steady", args.rounds)
        for keys in args.keys if "swap" in args.parts else ():
            _swaps(spark, home / f"swap-{keys}", keys, args.bytes)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)


class Stream:
    """A query over a folder into which batches are put one by one; each tells its duration in ms."""

    def __init__(self, spark: SparkSession, home: Path, name: str, provider: str) -> None:
        self.spark, self.home, self.folder, self.checkpoint = (
            spark,
            home,
            home / name / "in",
            home / name / "checkpoint",
        )
        self.folder.mkdir(parents=True)
        self.files = 0
        spark.conf.set(PROVIDER, provider)
        rows = (
            spark.readStream.schema("k LONG, payload STRING")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.folder))
        )
        self.query = self._start(rows.groupBy("k").agg(F.max("payload").alias("p")))

    def _start(self, df: DataFrame) -> StreamingQuery:
        writer = (
            df.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(self.checkpoint))
        )
        return writer.start()

    def batch(self, keys: np.ndarray, payload_bytes: int) -> int:
        hidden = self.folder / f".{self.files}"
        pq.write_table(pa.table({"k": keys, "payload": _payloads(len(keys), payload_bytes)}), hidden)
        hidden.rename(self.folder / f"{self.files:05d}.parquet")
        self.files += 1
        self.query.processAllAvailable()
        done = [p for p in self.query.recentProgress if p["numInputRows"] > 0][-1]
        return int(done["batchDuration"])


def _steady(spark: SparkSession, home: Path, rounds: int) -> None:
    """Each round gives one batch of 100,000 rows to plain Spark, to plain Spark again, and to Skewless with
    3,000 entries."""
    ours = spark.conf.get(PROVIDER)
    streams = {
        "Spark's own": Stream(spark, home, "plain", STOCK),
        "Spark's own again": Stream(spark, home, "again", STOCK),
        "Skewless, 3,000 entries": Stream(spark, home, "skewless", str(ours)),
    }
    rng = np.random.default_rng(7)
    keys = 200_000
    for stream in streams.values():
        stream.batch(np.arange(keys), 100)
    hashes = _hashes(spark, np.arange(3_000))
    skewless.balance(spark, policy=None).publish(
        streams["Skewless, 3,000 entries"].query,
        skewless.Table.of_moves(PARTITIONS, hashes, (hashes + 1) % PARTITIONS),
    )
    times: dict[str, list[int]] = {name: [] for name in streams}
    for i in range(rounds + 4):
        drawn = rng.integers(0, keys, 100_000)
        for name in np.roll(list(streams), i):
            times[name].append(streams[name].batch(drawn, 100))
    print(
        f"\nno swap: {rounds} rounds of 100,000 rows on {keys:,} keys; ratio of batch time to Spark's own in "
        "that round"
    )
    base = times["Spark's own"][4:]
    for name, found in times.items():
        ratios = [a / b for a, b in zip(found[4:], base, strict=True)]
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        print(
            f"  {name:26s} {middle:5.2f}  [{low:.2f} - {high:.2f}]   median batch "
            f"{statistics.median(found[4:]):,.0f} ms"
        )
    for stream in streams.values():
        stream.query.stop()


def _swaps(spark: SparkSession, home: Path, keys: int, payload_bytes: int) -> None:
    spark.conf.set(PROVIDER, "org.apache.spark.sql.skewless.SkewlessStateStoreProvider")
    stream = Stream(spark, home, "skewless", str(spark.conf.get(PROVIDER)))
    balancer = skewless.balance(spark, policy=None)
    rng = np.random.default_rng(7)
    _fill(stream, keys, payload_bytes)

    def normal() -> int:
        return stream.batch(rng.integers(0, keys, 100_000), payload_bytes)

    few = _hashes(spark, np.arange(10))
    balancer.publish(stream.query, skewless.Table.of_moves(PARTITIONS, few, (few + 1) % PARTITIONS))
    neighbours = [normal() for _ in range(7)][3:]
    print(
        f"\nswaps: {keys:,} keys of {payload_bytes} bytes, {PARTITIONS} partitions, batches of 100,000 rows"
    )
    print(
        "  moved      rows   export bytes / state bytes   export ms   swap batch / median of the batches "
        "around it"
    )
    for share in (0.01, 0.1, 0.5):
        hashes = np.unique(_hashes(spark, rng.choice(keys, int(keys * share), replace=False)))
        swap = balancer.publish(
            stream.query, skewless.Table.of_moves(PARTITIONS, hashes, (hashes + 1) % PARTITIONS)
        )
        took = normal()
        after = [normal() for _ in range(3)]
        record = _record(stream.checkpoint, swap.batch)
        around = statistics.median(neighbours + after)
        print(
            f"  {share:4.0%}  {record['rows']:9,}   {record['bytes']:12,} / {record['stateBytes']:12,} = "
            f"{record['bytes'] / record['stateBytes']:.3f}   {record['exportMs']:6,}   {took:,} / "
            f"{around:,.0f} ms = {took / around:.2f}"
        )
        neighbours = after
        balancer.publish(stream.query, skewless.Table(PARTITIONS))
        normal()
    stream.query.stop()
    _offline(spark, home, keys, payload_bytes)


def _offline(spark: SparkSession, home: Path, keys: int, payload_bytes: int) -> None:
    """Spark's own tool changes the number of partitions of a stopped query and rewrites all its state."""
    stream = Stream(spark, home, "plain", STOCK)
    _fill(stream, keys, payload_bytes)
    normal = [
        stream.batch(np.random.default_rng(i).integers(0, keys, 100_000), payload_bytes) for i in range(3)
    ]
    stream.query.stop()
    before = _du(stream.checkpoint)
    started = time.monotonic()
    spark._streamingCheckpointManager.repartition(str(stream.checkpoint), PARTITIONS + 1)
    took = (time.monotonic() - started) * 1000
    print(
        f"  Spark's offline repartition, query stopped: {took:,.0f} ms = "
        f"{took / statistics.median(normal):.1f} batches, "
        f"{_du(stream.checkpoint) - before:,} bytes written"
    )


def _fill(stream: Stream, keys: int, payload_bytes: int) -> None:
    for part in np.array_split(np.arange(keys), max(1, keys // 250_000)):
        stream.batch(part, payload_bytes)


def _payloads(count: int, size: int) -> pa.Array:
    """Strings that do not compress to nothing."""
    letters = np.random.default_rng(count).integers(97, 123, (count, size), dtype=np.uint8)
    return pa.array([bytes(row).decode() for row in letters])


def _hashes(spark: SparkSession, keys: np.ndarray) -> np.ndarray:
    frame = spark.createDataFrame(pa.table({"k": keys.astype(np.int64)}))
    return np.array(
        [row.h for row in frame.select(skewless.key_hash("k").alias("h")).collect()], dtype=np.int64
    )


def _record(checkpoint: Path, batch: int) -> dict[str, int]:
    """Written a moment after the batch."""
    path = checkpoint / "_skewless" / "swaps" / str(batch)
    for _ in range(100):
        if path.exists():
            return dict(json.loads(path.read_text()))
        time.sleep(0.1)
    raise TimeoutError(f"no swap in batch {batch}")


def _du(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="batches with and without a swap against plain Spark")
    parser.add_argument("--keys", type=int, nargs="+", default=[250_000, 1_000_000])
    parser.add_argument("--bytes", type=int, default=500, help="of the state of one key")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--parts", nargs="+", choices=("steady", "swap"), default=("steady", "swap"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
