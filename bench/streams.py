"""Real keyed streams through a stateful query, plain and balanced: how near each comes to the perfect balance.

The first rows of each parquet file in `--data` are replayed as micro-batches through `applyInPandasWithState` on a local
cluster with a slot for each of 8 partitions; each row waits, which stands for work. Share of perfect = mean partition /
heaviest partition, by rows, over all batches after the first four (the loop needs some to see anything); a stream whose
hottest key exceeds a fair share cannot reach 1 without a split, and its bound is printed. Rows of both runs are compared.

    python bench/streams.py --data DIR
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import skewless
from skewless.session import PROVIDER, PROVIDER_KEY

PARTITIONS = 8
SETTLED = 4
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    args = _arguments()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local-cluster[4,2,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", PARTITIONS)
    spark = skewless.configure(builder.config("spark.executor.memory", "1g")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print(f"{args.batches} batches of {args.rows:,} rows, {PARTITIONS} partitions, {args.wait_ms:g} ms a row")
    print("stream                 bound  plain  balanced  swaps  batch time plain / balanced  same rows")
    for name, keys in _streams(args):
        with tempfile.TemporaryDirectory(prefix="skewless-streams-") as folder:
            _compare(spark, name, np.array_split(keys, args.batches), Path(folder), args.wait_ms / 1000)
    spark.stop()


def _streams(args: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    count = args.rows * args.batches
    yield "uniform", [f"u{i}" for i in np.random.default_rng(1).integers(0, 20_000, count)]
    for path in sorted(Path(args.data).glob("*.parquet")) if args.data else ():
        described = json.loads(path.with_suffix(".json").read_text())
        if args.only and path.stem not in args.only:
            continue
        column = _key_column(described, pq.read_schema(path).names)
        rows = next(pq.ParquetFile(path).iter_batches(count, columns=[column]))
        keys = [str(key) for key in rows.column(0).to_pylist()]
        if len(keys) == count:
            yield path.stem, keys


def _key_column(described: dict[str, Any], names: list[str]) -> str:
    """The column that the description beside the file calls the key, else the first that is not a time."""
    key = described.get("key_column") or described.get("key")
    return key if key in names else next(name for name in names if name not in ("ts", "time", "timestamp"))


def _compare(spark: SparkSession, name: str, batches: list[Any], folder: Path, seconds: float) -> None:
    plain_ms, plain_rows, plain_loads, _ = _run(spark, folder / "plain", batches, seconds, balanced=False)
    level_ms, level_rows, level_loads, swaps = _run(spark, folder / "balanced", batches, seconds, balanced=True)
    hottest = max(np.unique(batch, return_counts=True)[1].max() / len(batch) for batch in batches[SETTLED:])
    ratio = np.median(plain_ms[SETTLED:]) / np.median(level_ms[SETTLED:])
    print(
        f"{name:22s} {min(1.0, 1 / (PARTITIONS * hottest)):5.2f}  {_share(plain_loads):5.2f}  {_share(level_loads):8.2f}  "
        f"{swaps:5d}  "
        f"{np.median(plain_ms[SETTLED:]):6.0f} / {np.median(level_ms[SETTLED:]):6.0f} ms = {ratio:.2f}       "
        f"{'yes' if plain_rows == level_rows else 'NO'}",
        flush=True,
    )


def _share(loads: list[np.ndarray]) -> float:
    """Rows done in the time of the heaviest partition, over what level partitions would have done."""
    settled = loads[SETTLED:]
    return float(sum(load.mean() for load in settled) / sum(load.max() for load in settled))


def _run(
    spark: SparkSession, folder: Path, batches: list[Any], seconds: float, balanced: bool
) -> tuple[list[int], dict[int, Any], list[np.ndarray], int]:
    (folder / "in").mkdir(parents=True)
    spark.conf.set(PROVIDER_KEY, PROVIDER if balanced else STOCK)
    rows: dict[int, Any] = {}

    def collect(df: DataFrame, batch: int) -> None:
        rows[batch] = sorted((row.k, row.n) for row in df.collect())

    source = spark.readStream.schema("k STRING").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    pace = skewless.Pace(patience=1, cooldown_seconds=0)
    balancer = skewless.balance(spark, "mixed" if balanced else None, max_imbalance=0.05, window=2, pace=pace)
    writer = _totals(source, seconds).writeStream.outputMode("update").foreachBatch(collect)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    taken = []
    for number, keys in enumerate(batches):
        hidden = folder / f".{number}"
        hidden.write_text("\n".join(json.dumps({"k": key}) for key in keys))
        hidden.rename(folder / "in" / f"{number:05d}.json")
        query.processAllAvailable()
        taken.append(next(int(p["durationMs"]["addBatch"]) for p in reversed(query.recentProgress) if p["batchId"] == number))
        time.sleep(0.4)
    loads = [load.rows for load in balancer.loads(query)] if balanced else _hashed(spark, batches)
    swaps = len(balancer.status().queries[0].swaps) if balanced else 0
    query.stop()
    balancer.stop()
    return taken, rows, loads, swaps


def _hashed(spark: SparkSession, batches: list[Any]) -> list[np.ndarray]:
    """The loads under plain hashing, which plain Spark does not tell."""
    hashes = {}
    keys = spark.createDataFrame([(key,) for key in np.unique(np.concatenate(batches)).tolist()], "k string")
    for row in keys.select("k", skewless.key_hash("k").alias("h")).collect():
        hashes[row.k] = row.h % PARTITIONS
    return [np.bincount([hashes[key] for key in batch], minlength=PARTITIONS) for batch in batches]


def _totals(df: DataFrame, seconds: float) -> DataFrame:
    def count(key: tuple[Any, ...], frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        import pandas as pd

        rows = sum(len(frame) for frame in frames)
        time.sleep(rows * seconds)
        total = (state.get[0] if state.exists else 0) + rows
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "n": [total]})

    return df.groupBy("k").applyInPandasWithState(count, "k string, n long", "n long", "update", GroupStateTimeout.NoTimeout)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="real streams, plain and balanced, against the perfect balance")
    parser.add_argument("--data", help="a folder of parquet files, each with a JSON beside it; without it uniform keys only")
    parser.add_argument("--only", nargs="+", help="names of streams")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--rows", type=int, default=4_000, help="of a batch")
    parser.add_argument("--wait-ms", type=float, default=3.0, help="of a row")
    return parser.parse_args()


if __name__ == "__main__":
    main()
