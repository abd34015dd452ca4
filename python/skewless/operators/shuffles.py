"""How many partitions Spark's next shuffle has."""

from __future__ import annotations

from pyspark.sql import SparkSession


def shuffle_partitions(spark: SparkSession) -> int:
    conf = spark.conf
    merged = all(
        str(conf.get(setting)) == "true"
        for setting in ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")
    )
    first = conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum", None) if merged else None
    return int(first or str(conf.get("spark.sql.shuffle.partitions")))
