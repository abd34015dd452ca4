"""Heavy hitters of a stream: for each site the users that visit it most, by a sketch in bounded memory.

One site has 60 % of the visits. Its sketches are made by many tasks and merged (Agarwal et al., "Mergeable
summaries", PODS 2012); the plain query makes the same sketch in the one task that has the site. Each sketch
here has room for all users of its site, so that the two are equal to the last count.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import skewless
from side_by_side import SLOTS, compare, ordered
from skewless.operators.aggregates import Aggregate, space_saving

BATCHES = 2
USERS = 200


def visits(spark: SparkSession, rows: int, folder: str) -> DataFrame:
    """A stream of `BATCHES` batches with a file per slot."""
    site = "if(id % 10 < 6, 'home', concat('site', pmod(hash(id), 40))) as site"
    made = spark.range(0, rows, 1, BATCHES * SLOTS).selectExpr(site, f"pmod(hash(id, 1), {USERS}) as user")
    made.write.parquet(f"{folder}/visits")
    files = spark.readStream.schema(made.schema).option("maxFilesPerTrigger", SLOTS)
    return files.parquet(f"{folder}/visits")


def sketching(wait: float) -> Aggregate:
    sketch = space_saving("user", USERS, "int")

    def partial(rows: pa.Table) -> pa.Table:
        time.sleep(wait * rows.num_rows)
        return sketch.partial(rows)

    return replace(sketch, partial=partial)


def plain(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    sketch = sketching(wait)

    def fold(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        partials = [pickle.loads(state.get[0])] if state.exists else []
        partials += [sketch.partial(pa.Table.from_pandas(frame[["user"]])) for frame in frames]
        whole = partials[0] if len(partials) == 1 else sketch.merge(pa.concat_tables(partials))
        state.update((pickle.dumps(whole),))
        result = sketch.result(whole) if sketch.result else whole
        yield result.to_pandas().assign(site=key[0])

    def query(df: DataFrame) -> DataFrame:
        schema = "site string, item int, at_least long, at_most long"
        return df.groupBy("site").applyInPandasWithState(fold, schema, "sketch binary", "update", "NoTimeout")

    return _last(spark, rows, query)


def levelled(spark: SparkSession, rows: int, wait: float) -> list[tuple[Any, ...]]:
    return _last(spark, rows, lambda df: skewless.aggregate(df, "site", using=sketching(wait), hot=["home"]))


def _last(spark: SparkSession, rows: int, query: Any) -> list[tuple[Any, ...]]:
    """The last result of each site, when all files are read."""
    last: dict[tuple[str, int], tuple[Any, ...]] = {}

    def keep(batch: DataFrame, _: int) -> None:
        last.update({(row["site"], row["item"]): tuple(row) for row in batch.collect()})

    with tempfile.TemporaryDirectory(prefix="skewless-visits-") as folder:
        writer = query(visits(spark, rows, folder)).writeStream.foreachBatch(keep).outputMode("update")
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        writer.start().awaitTermination()
    return ordered(list(last.values()))


if __name__ == "__main__":
    compare("heavy hitters of a stream", plain, levelled)
