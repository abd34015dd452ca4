"""`advise` for a DataFrame: its keys, in its order, replayed through every scheme that its operator
allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skewless.errors import ColumnError, SettingError
from skewless.operators.repartition import key_columns
from skewless.spark.gateway import Gateway

if TYPE_CHECKING:
    from skewless.simulate.advise import Advice
    from skewless.simulate.streams.stream import Stream


def advise(
    df: DataFrame, *columns: str | Column, workers: int, operator: str = "atomic", rows: int = 1_000_000
) -> Advice:
    """Which routing suits the keys of `df`, what it would gain, and the call that tells Spark to use it. At
    most `rows` keys are read to the driver, in the order in which Spark gives them: sort by time first if the
    order matters.

        print(skewless.advise(spark.table("events").orderBy("time"), "user", workers=32))

    `operator` is `atomic` for one that keeps one state per key, `mergeable` for a stateless step behind
    `skewless.repartition` whose partial results are merged later, `join` for a stream-stream join: then give
    the rows of the side that it lets a split spread.
    """
    from skewless.simulate.advise import advise as advise_keys

    return advise_keys(key_stream(df, *columns, rows=rows), workers, operator)


def key_stream(
    df: DataFrame, *columns: str | Column, rows: int = 1_000_000, label: str = "DataFrame"
) -> Stream:
    """The keys of a DataFrame as a stream for the simulator, hashed by Spark."""
    from skewless.simulate.streams.stream import Numbered

    if df.isStreaming:
        raise SettingError(
            "advise reads stored rows, and this DataFrame is a stream. Give it a sample of what the stream "
            "read."
        )
    if rows < 1:
        raise SettingError(f"rows is {rows}; at least one row is needed.")
    hashes, names = _keys(df, key_columns(columns), rows)
    found, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    return Numbered(numbers.astype(np.int32), found.astype(np.int32), names[first], label)


def _keys(df: DataFrame, keys: list[Column], rows: int) -> tuple[Any, Any]:
    """Each row's key as Spark hashes it, and as people read it."""
    name = F.concat_ws(" | ", *(F.coalesce(key.cast("string"), F.lit("null")) for key in keys))
    key_hash = Gateway(df.sparkSession).key_hash(keys)
    try:
        collected: Any = df.select(key_hash.alias("h"), name.alias("name")).limit(rows).toPandas()
    except AnalysisException as error:
        raise ColumnError(
            f"the key cannot be read: {error}. Name columns of the DataFrame that Spark can hash and print."
        ) from error
    return collected["h"].to_numpy(dtype=np.int64), collected["name"].to_numpy(dtype=object)
