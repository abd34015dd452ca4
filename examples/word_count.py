"""Word count, with the count in Python: "the" is a group of its own, and has a third of the words.

The setting of Nasir et al., "The power of both choices" (ICDE 2015). A count alone is best left to Spark's
`groupBy("word").count()`, which adds up before the shuffle; the wait stands for work that Spark cannot do so.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import skewless
from side_by_side import SLOTS, by_key, compare, ordered


def words(spark: SparkSession, rows: int) -> DataFrame:
    """Every third word is "the", the others are spread over 1,000."""
    word = "if(id % 3 = 0, 'the', concat('word', pmod(hash(id), 1000))) as word"
    return spark.range(0, rows, 1, SLOTS).selectExpr(word)


def counting(wait: float) -> Any:
    def count(rows: pa.Table) -> pa.Table:
        time.sleep(wait * rows.num_rows)
        return pa.table({"n": [rows.num_rows]})

    return count


def added(counts: pa.Table) -> pa.Table:
    return pa.table({"n": [pc.sum(counts["n"]).as_py()]})


def plain(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    groups = words(spark, rows).groupBy("word")
    return ordered(groups.applyInArrow(by_key(counting(wait)), "key string, n long").collect())


def levelled(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    counted = skewless.aggregate(
        words(spark, rows), "word", partial=counting(wait), merge=added, schema="n long"
    )
    return ordered(counted.collect())


if __name__ == "__main__":
    compare("word count", plain, levelled)
