"""A stream-stream join whose hot key comes in bursts with a rhythm: what forecasts gain in the loop on Spark.

An inner join as in `splits.py`: the right side is one row per key, read first; each row of the left side
matches one of them, and each match waits a millisecond, which stands for work, so that two cores can show
eight slots. In `--hot` batches of every `--period` one key has `--share` of the rows, else none has more than
another. Splits are "auto"; the loop takes a split back after `--calm` level batches (ten by default in
`Pace`), so that each burst finds the key whole.
The arms take turns, batch by batch, on the same rows:

    plain   Spark without Skewless
    none    the loop's own halved counts
    ewma    forecast="ewma"
    gru     forecast="gru", with a network that was trained on ten periods before and lies in forecast_folder,
            as that of a query that was started again does
    known   a forecaster that is told the law
    best    forecast="best", which must find the period by itself; only if asked for, with more batches

    python bench/forecast_join.py
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
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import skewless
from skewless import forecast
from skewless.forecast import Forecaster, History, Memory
from skewless.forecast.score import on
from skewless.forecast.weights import Arrays, save
from skewless.forecast.worker import Here
from skewless.model.snapshot import Floats
from skewless.simulate.streams import keyhash
from skewless.spark.session import PROVIDER, PROVIDER_KEY

STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ARMS = ("plain", "none", "ewma", "gru", "best", "known")
COLD_KEYS = 400
HASHES = keyhash.of_int64s(np.arange(COLD_KEYS + 1))
WAIT = "java_method('java.lang.Thread', 'sleep', 1L)"


@dataclass(frozen=True)
class Law:
    """Batch 0 is the right side's; then quiet comes before each burst."""

    period: int
    hot: int
    share: float

    def is_hot(self, batch: int) -> bool:
        return batch > 0 and (batch - 1) % self.period >= self.period - self.hot

    def shares(self, batch: int) -> Floats:
        """Of the hot key and of all others."""
        least = 1 / (COLD_KEYS + 1)
        hot = self.share if self.is_hot(batch) else least
        return np.concatenate([[hot], np.full(COLD_KEYS, (1 - hot) / COLD_KEYS)])


class Known(Forecaster):
    """Says what will come: the windows of the history are the batches, from the first on."""

    name = "known"
    law = Law(1, 1, 0.0)

    def shares(self, history: History, horizon: int) -> Floats:
        ahead = np.stack([self.law.shares(history.windows + step) for step in range(horizon)])
        return np.stack([on(history.key_hashes, HASHES, row) for row in ahead])


@dataclass
class Arm:
    """One query, in a session of its own."""

    name: str
    spark: SparkSession
    folder: Path
    balancer: skewless.Balancer | None = None
    query: StreamingQuery | None = None
    taken_ms: dict[int, float] = field(default_factory=dict)
    stretch: dict[int, float] = field(default_factory=dict)
    was_split: dict[int, bool] = field(default_factory=dict)
    digests: dict[int, tuple[int, int]] = field(default_factory=dict)

    def start(self, slots: int, calm: int, weights: Arrays) -> None:
        (self.folder / "in").mkdir(parents=True)
        self.spark.conf.set("spark.sql.shuffle.partitions", slots)
        self.spark.conf.set(PROVIDER_KEY, STOCK if self.name == "plain" else PROVIDER)
        if self.name != "plain":
            self.balancer = skewless.balance(
                self.spark, splits="auto", forecast=self.name, forecast_folder=str(self.folder),
                pace=skewless.Pace(patience=1, cooldown_seconds=0, calm=calm), max_imbalance=0.25,
            )  # fmt: skip
        source = self.spark.readStream.schema("side STRING, k LONG, v LONG").option("maxFilesPerTrigger", 1)
        rows = source.parquet(str(self.folder / "in"))
        left = rows.where("side = 'l'").selectExpr("k", "v as lv")
        right = rows.where("side = 'r'").selectExpr("k as rk", "v as rv")
        pairs = left.join(right, F.expr("k = rk")).select(
            F.spark_partition_id(), F.xxhash64("k", "lv", "rv"), F.expr(WAIT)
        )
        writer = pairs.writeStream.foreachBatch(lambda df, batch: self._see(df.collect(), batch))
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        if self.name == "gru":
            save(self.folder / f"{self.query.id}.gru", weights)

    def _see(self, rows: list[Any], batch: int) -> None:
        """Two runs with the same count and sum of hashes have the same rows."""
        self.digests[batch] = len(rows), sum(row[1] for row in rows)
        loads = np.bincount([row[0] for row in rows], minlength=self._partitions)
        self.stretch[batch] = float(loads.max() / loads.mean()) if rows else 1.0

    @property
    def _partitions(self) -> int:
        return int(self.spark.conf.get("spark.sql.shuffle.partitions") or 0)

    def feed(self, number: int, table: pa.Table) -> None:
        assert self.query is not None
        hidden = self.folder / f".{number}"
        pq.write_table(table, hidden, row_group_size=max(1, table.num_rows // 4))
        hidden.rename(self.folder / "in" / f"{number:05d}.parquet")
        self.query.processAllAvailable()
        progress = next(p for p in reversed(self.query.recentProgress) if p["batchId"] == number)
        self.taken_ms[number] = float(progress["durationMs"]["triggerExecution"])
        self.was_split[number] = (
            any(q.splits for q in self.balancer.status().queries) if self.balancer else False
        )

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()
        if self.balancer is not None:
            for query in self.balancer.status().queries:
                print(f"  {self.name}: {len(query.swaps)} swaps; {query.forecast or 'no forecast'}")
            self.balancer.stop()


def main() -> None:
    args = _arguments()
    law = Law(args.period, args.hot, args.share)
    Known.law = law
    forecast._CHEAP["known"], forecast.NAMES = Known, (*forecast.NAMES, "known")  # type: ignore[misc]
    weights = _trained(law, args.rows)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{args.slots}]").config("spark.ui.enabled", "false")
    spark = skewless.configure(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(prefix="skewless-forecast-join-") as folder:
        arms = [Arm(name, spark.newSession(), Path(folder) / name) for name in args.arms]
        for arm in arms:
            arm.start(args.slots, args.calm, weights)
            arm.feed(0, _right())
        random = np.random.default_rng(args.seed)
        for number in range(1, 1 + args.batches):
            table = _left(random, args.rows, law, number)
            turn = number % len(arms)
            for arm in arms[turn:] + arms[:turn]:
                arm.feed(number, table)
        for arm in arms:
            arm.stop()
        _tell(arms, law, range(1 + args.learn, 1 + args.batches), args)
    spark.stop()


def _trained(law: Law, rows: int) -> Arrays:
    """The network after ten periods."""
    memory, random, trainer = Memory(), np.random.default_rng(1), Here()
    for batch in range(1, 1 + 10 * law.period):
        memory.add(HASHES, random.multinomial(rows, law.shares(batch)) / rows)
    trainer.ask(memory.history, seed=0)
    found = trainer.collect()
    assert found is not None
    return found


def _right() -> pa.Table:
    keys = np.arange(COLD_KEYS + 1)
    return pa.table({"side": pa.array(["r"] * len(keys)), "k": keys, "v": keys})


def _left(random: np.random.Generator, rows: int, law: Law, number: int) -> pa.Table:
    keys = random.choice(COLD_KEYS + 1, rows, p=law.shares(number))
    return pa.table({"side": pa.array(["l"] * rows), "k": keys, "v": number * rows + np.arange(rows)})


def _tell(arms: list[Arm], law: Law, judged: range, args: argparse.Namespace) -> None:
    hot = [batch for batch in judged if law.is_hot(batch)]
    first = [batch for batch in hot if not law.is_hot(batch - 1)]
    later, quiet = sorted(set(hot) - set(first)), sorted(set(judged) - set(hot))
    print(
        f"{args.slots} slots, {args.rows} rows per batch, one key with {law.share:.0%} in {law.hot} of every "
        f"{law.period} batches; judged batches {judged[0]} to {judged[-1]}, {len(first)} bursts\n"
        "| arm | max / mean, first of a burst | later in it | quiet | batch ms, first of a burst "
        "| later in it | quiet | all, of plain | rows same |\n|---|---|---|---|---|---|---|---|---|"
    )
    plain = next((arm for arm in arms if arm.name == "plain"), arms[0])
    for arm in arms:
        cells = [_spread([arm.stretch[b] for b in some], 2) for some in (first, later, quiet)]
        cells += [_spread([arm.taken_ms[b] for b in some], 0) for some in (first, later, quiet)]
        ratio = sum(arm.taken_ms[b] for b in judged) / sum(plain.taken_ms[b] for b in judged)
        same = arm.digests == plain.digests
        print(f"| {arm.name} | {' | '.join(cells)} | {ratio:.2f} | {'yes' if same else 'NO'} |", flush=True)
    for arm in arms:
        print(
            arm.name, " ".join(f"{arm.stretch[b]:.1f}{'s' * arm.was_split[b]}" for b in sorted(arm.taken_ms))
        )


def _spread(values: list[float], digits: int) -> str:
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS[:4] + ARMS[5:]))
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rows", type=int, default=4000, help="of the left side, per batch")
    parser.add_argument("--share", type=float, default=0.6, help="of the hot key in a burst")
    parser.add_argument("--period", type=int, default=8)
    parser.add_argument("--hot", type=int, default=3, help="batches of a burst")
    parser.add_argument("--batches", type=int, default=32)
    parser.add_argument("--learn", type=int, default=8, help="batches that are not judged")
    parser.add_argument("--calm", type=int, default=3, help="level batches before a split is taken back")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
