"""Time and disk for converting an HDFS-backed checkpoint, beside the time that its state took to fill.

    .venv/bin/python bench/convert.py [millions of keys, 1 by default]

One count by key, 8 partitions, local[2]: a batch that fills the state, then `skewless convert`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import skewless
from skewless.spark.gateway import Gateway
from skewless.spark.session import PROVIDER_KEY
from skewless.spark.stopped import Conversion

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
PARTITIONS = 8


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("skewless convert bench")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": PARTITIONS,
        PROVIDER_KEY: HDFS,
    }.items():
        builder = builder.config(key, value)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def bytes_of(folder: Path, *suffixes: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.suffix in suffixes)


def fill(spark: SparkSession, home: Path, keys: int) -> float:
    """Seconds of the batch that puts so many keys into the state; a batch of one key warms up before it."""
    rows = spark.range(keys).select(F.concat(F.lit("user-"), "id").alias("k"))
    rows.limit(1).repartition(1).write.parquet(str(home / "in"))
    stream = spark.readStream.schema("k string").parquet(str(home / "in"))
    writer = stream.groupBy("k").count().writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    query.processAllAvailable()
    rows.repartition(4).write.mode("append").parquet(str(home / "in"))
    query.processAllAvailable()
    seconds = max(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000
    query.stop()
    return seconds


def main() -> None:
    keys = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1_000_000)
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        filled = fill(spark, home, keys)
        started = time.monotonic()
        conversion = Conversion.of(Gateway(spark), str(home / "checkpoint"), 1)
        rows = sum(conversion.copy(store) for store in range(len(conversion.stores)))
        conversion.commit()
        converted = time.monotonic() - started
        old = bytes_of(home / "checkpoint", ".delta", ".snapshot")
        new = bytes_of(home / "checkpoint", ".zip", ".sst", ".changelog")
    spark.stop()
    print(
        f"{rows:,} keys: filled in {filled:.1f} s, converted in {converted:.1f} s ({converted / filled:.2f}x)"
    )
    print(f"old state {old / 1e6:.1f} MB, new state {new / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
