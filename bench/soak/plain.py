"""What plain Spark gives for the batches that a query did read: in a process without Skewless, which plays
one query after the other.

    python -m bench.soak.plain      # reads lines "SEED QUERY FOLDER", answers each with a line
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from bench.soak.play import as_text, session, source
from bench.soak.story import QueryStory, Story, write_batches
from integration.state_run import STOCK
from pyspark.sql import DataFrame, SparkSession

from skewless.spark.session import PROVIDER_KEY


def batches_read(checkpoint: Path) -> list[list[Path]]:
    """The files of each batch with input, in order, as the logs of the checkpoint have them."""
    ends: list[int] = []
    for offset in sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        ends.append(json.loads(offset.read_text().splitlines()[-1])["logOffset"])
    files: dict[int, set[Path]] = {}
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            files.setdefault(entry["batchId"], set()).add(Path(entry["path"].removeprefix("file:")))
    found, before = [], -1
    for end in ends:
        if end > before:
            found.append(sorted(path for number in range(before + 1, end + 1) for path in files[number]))
        before = end
    return found


def play(spark: SparkSession, story: QueryStory, home: Path) -> None:
    """Writes what each batch of plain Spark gives to `home/plain.json`."""
    batches = batches_read(home / "checkpoint")
    write_batches(
        home / "plain-in",
        ["\n".join(path.read_text() for path in files if path.stat().st_size) for files in batches],
    )
    rows: dict[int, list[str]] = {}

    def sink(df: DataFrame, batch: int) -> None:
        rows[batch] = as_text(df)

    spark.conf.set(PROVIDER_KEY, STOCK)
    writer = story.operator.build(source(spark, home / "plain-in")).writeStream
    writer = writer.outputMode(story.operator.mode).trigger(availableNow=True).foreachBatch(sink)
    query = writer.option("checkpointLocation", str(home / "plain-checkpoint")).start()
    query.awaitTermination()
    assert sum(map(len, batches)) == len(list((home / "in").glob("*.json"))), "every file was read once"
    (home / "plain.json").write_text(json.dumps(rows))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="skewless-soak-plain-") as folder:
        spark = session("soak, plain", False, Path(folder)).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        assert "Skewless" not in (spark.conf.get("spark.sql.extensions", "") or "")
        for line in sys.stdin:
            seed, number, home = line.rstrip("\n").split(" ", 2)
            play(spark, Story.of(int(seed)).queries[int(number)], Path(home))
            print("done", home, flush=True)
        spark.stop()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    main()
