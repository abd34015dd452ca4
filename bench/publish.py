"""How long `balancer.publish` takes for tables of several sizes, on a running stream: median and range.

python bench/publish.py --repeats 15
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import numpy as np
from pyspark.sql import SparkSession

import skewless


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = skewless.configure(builder.config("spark.ui.showConsoleProgress", "false")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    balancer = skewless.balance(spark, policy=None)
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = spark.readStream.format("rate").load()
        writer = (
            skewless.repartition(stream, 64, "value")
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
        )
        query = writer.trigger(processingTime="1 hour").start()
        time.sleep(5)
        print("publish: validate, write table and pin under the checkpoint, read back (local disk)")
        for entries in (0, 3_000, 50_000):
            rng = np.random.default_rng(entries)
            hashes = np.unique(rng.integers(-(1 << 31), 1 << 31, 2 * entries + 1))[:entries]
            taken = []
            for _ in range(repeats):
                table = skewless.Table.of_moves(64, hashes, rng.integers(0, 64, entries))
                started = time.perf_counter()
                balancer.publish(query, table)
                taken.append(1000 * (time.perf_counter() - started))
            print(
                f"  {entries:7,} entries   {statistics.median(taken):7.1f} ms median   [{min(taken):.1f} - "
                f"{max(taken):.1f}]"
            )
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
