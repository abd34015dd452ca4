"""The loop on real executors: a key that is most of a join's rows is split by itself, and goes home when it
cools; batch by batch the results are plain Spark's."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from integration.state_run import STOCK
from skewless.spark.session import PROVIDER, PROVIDER_KEY

N = 4
CORES = 2
CONF = {"spark.sql.shuffle.partitions": str(N), "spark.sql.files.maxPartitionBytes": "8000"}
HOT, COOL = 6, 8  # batches
EAGER = skewless.Pace(patience=1, calm=2, cooldown_seconds=0)

Rows = list[tuple[Any, ...]]


def rows_of(batch: int) -> list[dict[str, Any]]:
    """Clicks on the left, a few views on the right. While it is hot, key k0 has six clicks in ten."""
    hot, clock = 600 if batch < HOT else 2, 10 * batch
    keys = ["k0"] * hot + [f"k{i % 40 + 1}" for i in range(400)]
    left = [{"side": "l", "k": k, "v": 1000 * batch + i, "t": clock + i % 10} for i, k in enumerate(keys)]
    views = ["k0", "k0", *(f"k{i + 1}" for i in range(40))]
    return left + [
        {"side": "r", "k": k, "v": 1000 * batch + i, "t": clock + i % 10} for i, k in enumerate(views)
    ]


def joined(df: DataFrame) -> DataFrame:
    """Left outer, so that a row that meets no partner counts, too; a row of the result takes a while."""

    @F.udf("long")
    def slow(v: int) -> int:
        time.sleep(0.0005)
        return v

    timed = df.withColumn("t", F.timestamp_seconds("t")).withWatermark("t", "15 seconds")
    left = timed.where("side = 'l'").selectExpr("k", "v as lv", "t as lt")
    right = timed.where("side = 'r'").selectExpr("k as rk", "v as rv", "t as rt")
    near = "k = rk AND (lv + rv) % 3 = 0 AND rt BETWEEN lt AND lt + INTERVAL 12 seconds"
    return left.join(right, F.expr(near), "left_outer").withColumn("lv", slow("lv"))


class Stream:
    def __init__(self, spark: SparkSession, home: Path, provider: str) -> None:
        self.home, self.rows = home, dict[int, Rows]()
        (home / "in").mkdir(parents=True)
        spark.conf.set(PROVIDER_KEY, provider)
        schema = "side string, k string, v long, t long"
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(home / "in"))
        writer = joined(source).writeStream.outputMode("append").foreachBatch(self._note)
        self.query = writer.option("checkpointLocation", str(home / "checkpoint")).start()

    def _note(self, df: DataFrame, batch: int) -> None:
        self.rows[batch] = sorted((tuple(row) for row in df.collect()), key=str)

    def run(self, pause: float = 0.0) -> Stream:
        for batch in range(HOT + COOL):
            hidden = self.home / f".{batch}"
            hidden.write_text("\n".join(json.dumps(row) for row in rows_of(batch)))
            hidden.rename(self.home / "in" / f"{batch}.json")
            self.query.processAllAvailable()
            time.sleep(pause)
        return self


def test_a_hot_key_of_a_join_is_split_and_goes_home_with_plain_sparks_results(
    spark: SparkSession, tmp_path: Path
) -> None:
    plain = Stream(spark, tmp_path / "plain", STOCK).run()
    plain.query.stop()
    with skewless.balance(
        spark, splits="auto", max_imbalance=0.15, pace=EAGER, poll_seconds=0.05
    ) as balancer:
        level = Stream(spark, tmp_path / "level", PROVIDER).run(pause=0.5)
        (query,) = balancer.status().queries
        level.query.stop()
    swaps = [str(swap) for swap in query.swaps]
    assert level.rows == plain.rows
    assert any(row[3] is None for rows in plain.rows.values() for row in rows), "null rows are decided"
    assert any("split" in swap and "left side over" in swap for swap in swaps), (
        swaps,
        query.why,
        query.errors,
    )
    assert any("whole again" in swap for swap in swaps), (swaps, query.why, query.errors)
    assert query.errors == {}
