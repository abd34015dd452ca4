"""One hot key of a stream-stream join, split or not: plain Spark beside `skewless.balance(splits="auto")`.

An inner join on a key. Its right side is one row per key, read first; every row of the left side matches one
of them, and each match waits a millisecond, which stands for work, so that two cores can show many slots. The
two queries take turns, batch by batch, on the same rows; batches in which the loop has not split yet are left
out. Plain Spark cannot end before the hot key's rows are done by one task; `perfect` is level tasks.

    python bench/splits.py --shares 0.3 0.6 0.9 --slots 8 16
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import skewless
from skewless.spark.session import PROVIDER, PROVIDER_KEY

STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
COLD_KEYS = 1000
WAIT = "java_method('java.lang.Thread', 'sleep', 1L)"


@dataclass
class Arm:
    """One query, in a session of its own."""

    spark: SparkSession
    folder: Path
    splits: str | None
    balancer: skewless.Balancer | None = None
    query: StreamingQuery | None = None
    taken_ms: list[float] = field(default_factory=list)
    rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    state_rows: int = 0

    def start(self, slots: int) -> None:
        (self.folder / "in").mkdir(parents=True)
        self.spark.conf.set("spark.sql.shuffle.partitions", slots)
        self.spark.conf.set(PROVIDER_KEY, PROVIDER if self.splits else STOCK)
        if self.splits:
            pace = skewless.Pace(patience=1, cooldown_seconds=0)
            self.balancer = skewless.balance(self.spark, splits=self.splits, pace=pace)
        source = self.spark.readStream.schema("side STRING, k LONG, v LONG").option("maxFilesPerTrigger", 1)
        rows = source.parquet(str(self.folder / "in"))
        left = rows.where("side = 'l'").selectExpr("k", "v as lv")
        right = rows.where("side = 'r'").selectExpr("k as rk", "v as rv")
        pairs = left.join(right, F.expr("k = rk")).withColumn("waited", F.expr(WAIT))
        writer = pairs.writeStream.foreachBatch(self._digest)
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def _digest(self, df: DataFrame, batch: int) -> None:
        """Two runs with the same count and sum of hashes have the same rows."""
        digest = F.sum(F.xxhash64("k", "lv", "rv").cast("decimal(20,0)"))
        self.rows[batch] = tuple(df.agg(F.count("*"), digest, F.count("waited")).collect()[0])

    def feed(self, number: int, table: pa.Table) -> None:
        assert self.query is not None
        hidden = self.folder / f".{number}"
        pq.write_table(table, hidden, row_group_size=max(1, table.num_rows // 4))
        hidden.rename(self.folder / "in" / f"{number:05d}.parquet")
        self.query.processAllAvailable()
        progress = next(p for p in reversed(self.query.recentProgress) if p["batchId"] == number)
        self.taken_ms.append(float(progress["durationMs"]["triggerExecution"]))
        self.state_rows = progress["stateOperators"][0]["numRowsTotal"]

    def has_split(self) -> bool:
        return self.balancer is not None and any(query.splits for query in self.balancer.status().queries)

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()
        if self.balancer is not None:
            self.balancer.stop()


def main() -> None:
    args = _arguments()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for slots in args.slots:
        builder = SparkSession.builder.master(f"local[{slots}]").config("spark.ui.enabled", "false")
        spark = skewless.configure(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        for share in args.shares:
            with tempfile.TemporaryDirectory(prefix="skewless-splits-") as folder:
                _compare(spark, Path(folder), slots, share, args)
        spark.stop()


def _compare(spark: SparkSession, folder: Path, slots: int, share: float, args: argparse.Namespace) -> None:
    plain = Arm(spark.newSession(), folder / "plain", None)
    ours = Arm(spark.newSession(), folder / "ours", "auto")
    for arm in (plain, ours):
        arm.start(slots)
        arm.feed(0, _right())
    random, since = np.random.default_rng(7), 0
    for number in range(1, 1 + args.most):
        table = _left(random, args.rows, share, number)
        for arm in (plain, ours) if number % 2 else (ours, plain):
            arm.feed(number, table)
        since += ours.has_split()
        if since > args.rounds:  # the first batch that shows the split may hold the swap
            break
    same = plain.rows == ours.rows
    for arm in (plain, ours):
        arm.stop()
    if since <= args.rounds:
        print(f"{slots} slots, {share:.0%} on one key: no split after {args.most} batches; rows same: {same}")
        return
    last = slice(-args.rounds, None)
    times, base = np.array(ours.taken_ms[last]), np.array(plain.taken_ms[last])
    perfect = args.rows / slots
    low, factor, high = np.percentile(base / times, [25, 50, 75])
    print(
        f"{slots} slots, {share:.0%} on one key: plain / Skewless {factor:.2f} [{low:.2f} - {high:.2f}], "
        f"of perfect {perfect / np.median(times):.2f} (plain {perfect / np.median(base):.2f}); "
        f"state rows {ours.state_rows / plain.state_rows:.2f} times plain's; rows same: {same}",
        flush=True,
    )


def _right() -> pa.Table:
    keys = np.arange(COLD_KEYS + 1)
    return pa.table({"side": pa.array(["r"] * len(keys)), "k": keys, "v": keys})


def _left(random: np.random.Generator, rows: int, share: float, number: int) -> pa.Table:
    keys = np.where(random.random(rows) < share, 0, random.integers(1, COLD_KEYS + 1, rows))
    return pa.table({"side": pa.array(["l"] * rows), "k": keys, "v": number * rows + np.arange(rows)})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3, 0.6, 0.9])
    parser.add_argument("--slots", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--rows", type=int, default=8000, help="of the left side, per batch")
    parser.add_argument("--rounds", type=int, default=6, help="batches that count, after the split")
    parser.add_argument("--most", type=int, default=16, help="batches at most")
    return parser.parse_args()


if __name__ == "__main__":
    main()
