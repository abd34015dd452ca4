"""Run by `test_faults.py` on two hosts: one reduce task of a split shuffle crawls until Spark runs it a
second time."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import skewless
from integration.test_faults import checksum, source, split

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.quantile": "0.3",
    "spark.executor.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.pyspark.python": sys.executable,
}


def main(folder: str) -> None:
    builder = SparkSession.builder.master(os.environ["MASTER"])
    for key, value in SPECULATION.items():
        builder = builder.config(key, value)
    spark = skewless.configure(builder).getOrCreate()

    def slow_once(frames: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        for frame in frames:
            yield frame
            if task.partitionId() == 5:
                Path(f"{folder}/attempt-{task.attemptNumber()}").touch()
                if task.attemptNumber() == 0:
                    time.sleep(30)

    survived = checksum(split(source(spark, 3)).mapInPandas(slow_once, "k long, v long"))
    print("SAME", survived == checksum(source(spark, 3)))
    spark.stop()


if __name__ == "__main__":
    main(os.environ["MARKS"])
