"""TPC-H query 5 on a stream: what customers bought of suppliers of their own nation, batch after batch.

One customer, a wholesaler, has 60 % of the line items, so the join with the customers has a hot key. Each
micro-batch is joined in `foreachBatch`, where any call for batch DataFrames works. The generator is ours, and
smaller than TPC-H's; the columns are those that query 5 reads, with amounts in whole cents.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from side_by_side import SLOTS, compare, ordered, waiting

BATCHES = 2
Join = Callable[[DataFrame, DataFrame], DataFrame]


def items(spark: SparkSession, rows: int, folder: str) -> DataFrame:
    """A stream of line items with the customer of their order, a file per slot and batch."""
    made = spark.range(0, rows, 1, BATCHES * SLOTS).selectExpr(
        "if(pmod(hash(id), 10) < 6, 0, 1 + pmod(hash(id, 1), 1000)) as customer",
        "pmod(hash(id, 2), 100) as supplier",
        "100 + pmod(hash(id, 3), 10000) as cents",
    )
    made.write.parquet(f"{folder}/items")
    files = spark.readStream.schema(made.schema).option("maxFilesPerTrigger", SLOTS)
    return files.parquet(f"{folder}/items")


def plain(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    return _revenue(spark, rows, wait, lambda left, right: left.join(right, "customer"))


def levelled(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    return _revenue(
        spark,
        rows,
        wait,
        lambda left, right: skewless.join(left, right, "customer", leave_to_aqe=False),
    )


def _revenue(spark: SparkSession, rows: int, wait: float, join: Join) -> list[tuple[Any, ...]]:
    """The cents of each nation of one region, over all batches: nations 0, 5, ... of 25."""
    customers = spark.range(0, 1001).selectExpr("int(id) as customer", "int(id % 25) as nation")
    suppliers = spark.range(0, 100).selectExpr("int(id) as supplier", "int(id % 25) as supplier_nation")
    total: Counter[int] = Counter()

    def add(batch: DataFrame, _: int) -> None:
        pairs = join(batch.hint("merge"), customers).select("supplier", "cents", "nation")
        looked_at = pairs.mapInArrow(waiting(wait), pairs.schema).join(F.broadcast(suppliers), "supplier")
        own = looked_at.where("nation = supplier_nation and nation % 5 = 0")
        total.update(dict(map(tuple, own.groupBy("nation").agg(F.sum("cents")).collect())))

    with tempfile.TemporaryDirectory(prefix="skewless-items-") as folder:
        writer = items(spark, rows, folder).writeStream.foreachBatch(add).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    return ordered(list(total.items()))


if __name__ == "__main__":
    compare("TPC-H query 5 on a stream", plain, levelled)
