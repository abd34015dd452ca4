"""Run by `test_state_faults.py` on two hosts: in a swap, a task that takes moved state crawls until Spark
runs it twice."""

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import skewless
from integration.state_run import CONF, STOCK, Run, key_hashes, table, totals
from integration.straggler import SPECULATION

SLOW = 1
BATCHES = 4
SWAP = 2


def main(home: Path, marks: str, checkpoint_format: int) -> None:
    builder = SparkSession.builder.master(os.environ["MASTER"])
    for key, value in (CONF | SPECULATION).items():
        builder = builder.config(key, value)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    balancer = skewless.balance(spark, policy=None)
    plain = Run(spark, home / "plain", totals).start(STOCK)
    plain.feed(*range(BATCHES))
    plain.query.stop()

    def crawl(key: object) -> None:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        mark = Path(f"{marks}/attempt-{task.attemptNumber()}")
        if task.partitionId() == SLOW and os.path.exists(f"{marks}/armed") and not mark.exists():
            mark.touch()
            if task.attemptNumber() == 0:
                time.sleep(60)

    def slow(df: DataFrame) -> DataFrame:
        return totals(df, crawl)

    swapped = Run(spark, home / "swapped", slow, checkpoint_format=checkpoint_format).start()
    for batch in range(BATCHES):
        if batch == SWAP:
            swap = balancer.publish(swapped.query, table(key_hashes(spark), 1))
            Path(marks, "armed").touch()
        swapped.feed(batch)
        Path(marks, "armed").unlink(missing_ok=True)
    swapped.assert_moved(swap)
    record = json.loads((swapped.checkpoint / "_skewless" / "swaps" / str(swap.batch)).read_text())
    found = {
        "plain": plain.rows,
        "swapped": swapped.rows,
        "targets": record["targets"],
        "slow partition": SLOW,
    }
    print(json.dumps(found))
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(Path(os.environ["HOME_FOLDER"]), os.environ["MARKS"], int(os.environ["FORMAT"]))
