"""A windowed self-join: each tick of a stock with the ticks of the same stock in the five seconds after it.

Half of the ticks are of one stock, as on the days that the papers' stock data are taken from. The pairs are
looked at in Python; the wait stands for that. The join is on the stock, the window is a further condition.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from side_by_side import SLOTS, compare, ordered, waiting


def ticks(spark: SparkSession, rows: int) -> DataFrame:
    """Two ticks a second of the hot stock; prices are whole cents."""
    stock = "if(id % 2 = 0, 'HOT', concat('S', pmod(hash(id), 200))) as stock"
    return spark.range(0, rows, 1, SLOTS).selectExpr(
        stock, "id div 4 as at", "1000 + pmod(hash(id, 1), 100) as price"
    )


def sides(spark: SparkSession, rows: int) -> tuple[DataFrame, DataFrame, Any]:
    earlier = ticks(spark, rows)
    later = earlier.selectExpr("stock as later_stock", "at as later_at", "price as later_price")
    soon = F.col("later_at").between(F.col("at") + 1, F.col("at") + 5)
    return earlier.hint("merge"), later, (F.col("stock") == F.col("later_stock")) & soon


def plain(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    earlier, later, condition = sides(spark, rows)
    return _rises(earlier.join(later, condition), wait)


def levelled(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    earlier, later, condition = sides(spark, rows)
    return _rises(skewless.join(earlier, later, condition, leave_to_aqe=False), wait)


def _rises(pairs: DataFrame, wait: float) -> list[tuple[Any, ...]]:
    """Per stock its pairs, and in how many of them the price rose."""
    seen = pairs.select("stock", "price", "later_price").mapInArrow(
        waiting(wait / 5), "stock string, price int, later_price int"
    )
    rose = F.count_if(F.col("later_price") > F.col("price"))
    return ordered(seen.groupBy("stock").agg(F.count("*"), rose).collect())


if __name__ == "__main__":
    compare("windowed self-join of stock ticks", plain, levelled)
