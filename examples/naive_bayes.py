"""Naive Bayes over words: training counts labels per word, prediction joins documents with those counts.

Training is groups with hot words; prediction is a join with them. Both are what Nasir et al. ("The power of
both choices", ICDE 2015, section on applications) do by partial key grouping. Weights are whole millionths,
so that no sum depends on its order.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from side_by_side import SLOTS, by_key, compare, ordered, waiting

LABELS = ["ham", "spam"]
SCHEMA = "ham long, spam long"


def documents(spark: SparkSession, rows: int) -> DataFrame:
    """A row per word of a document of 40 words; 40 % of the words are "free" or "the"."""
    word = """case when pmod(hash(id, 1), 10) < 3 then 'the'
                   when pmod(hash(id, 1), 10) < 4 then 'free'
                   else concat('w', pmod(hash(id, 2), 400) + if(id % 80 < 40, 100, 0)) end as word"""
    label = "if(id % 80 < 40, 'spam', 'ham') as label"
    return spark.range(0, rows, 1, SLOTS).selectExpr("id div 40 as document", label, word)


def training(wait: float) -> Any:
    def train(rows: pa.Table) -> pa.Table:
        time.sleep(wait * rows.num_rows)
        return pa.table({label: [pc.sum(pc.equal(rows["label"], label)).as_py()] for label in LABELS})

    return train


def added(counts: pa.Table) -> pa.Table:
    return pa.table({label: [pc.sum(counts[label]).as_py()] for label in LABELS})


def plain(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    words = documents(spark, rows)
    grouped = words.groupBy("word").applyInArrow(by_key(training(wait / 2)), f"key string, {SCHEMA}")
    model = _weights(spark, grouped.withColumnRenamed("key", "word").collect())
    return _predicted(words.hint("merge").join(model, "word"), wait / 2)


def levelled(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    words = documents(spark, rows)
    trained = skewless.aggregate(words, "word", partial=training(wait / 2), merge=added, schema=SCHEMA)
    model = _weights(spark, trained.collect())
    return _predicted(skewless.join(words.hint("merge"), model, "word", leave_to_aqe=False), wait / 2)


def _weights(spark: SparkSession, counts: list[Any]) -> DataFrame:
    """The model: the weight of each word for "spam" against "ham", with one count added to each."""
    weights = [(row["word"], round(1e6 * math.log((row["spam"] + 1) / (row["ham"] + 1)))) for row in counts]
    return spark.createDataFrame(weights, "word string, weight long")


def _predicted(weighed: DataFrame, wait: float) -> list[tuple[Any, ...]]:
    """Each document, and whether its weights say "spam"."""
    pairs = weighed.select("document", "label", "weight").mapInArrow(
        waiting(wait), "document long, label string, weight long"
    )
    said = F.when(F.sum("weight") > 0, "spam").otherwise("ham")
    return ordered(pairs.groupBy("document", "label").agg(said).collect())


if __name__ == "__main__":
    compare("naive Bayes, training and prediction", plain, levelled)
