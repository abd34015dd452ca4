"""`repartition` routed by a table, for batch DataFrames and streams; and the hash that a table is keyed
on."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from skewless.errors import ColumnError, SettingError, TableError
from skewless.model.table import Table
from skewless.spark.gateway import Gateway


def repartition(
    df: DataFrame, partitions: int, *columns: str | Column, table: Table | None = None
) -> DataFrame:
    """`df.repartition(partitions, *columns)`, routed by `table`.

    Without a table a stream takes the one that was published for its query, batch by batch, and anything else
    is hashed as by Spark. With moves only, a later `groupBy` on the key needs no other shuffle; with splits
    it shuffles again and stays right.
    """
    if not isinstance(df, DataFrame):
        raise SettingError(f"repartition takes a DataFrame, not {df!r}: repartition(df, 8, 'key').")
    if isinstance(partitions, bool) or not isinstance(partitions, int):
        raise SettingError(
            f"partitions is {partitions!r}; it takes a whole number: repartition(df, 8, 'key')."
        )
    if table is not None and not isinstance(table, Table):
        raise TableError(f"table is a {type(table).__name__}; it takes a skewless.Table.")
    gateway = Gateway(df.sparkSession)
    return gateway.repartition(
        df, partitions, key_columns(columns), None if table is None else table.encode()
    )


def key_hash(*columns: str | Column, spark: SparkSession | None = None) -> Column:
    """The 32-bit hash that Spark partitions these columns by, as a column: what a table's entries are keyed
    on.

    The same as `F.hash` for ordinary types, and right for collated strings too.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SettingError("there is no active Spark session. Start one, or pass spark=.")
    return Gateway(session).key_hash(key_columns(columns))


def key_columns(columns: tuple[str | Column, ...]) -> list[Column]:
    """Names and Columns as Columns; anything else is a ColumnError."""
    if not columns:
        raise ColumnError('no key column was given. Name at least one: repartition(df, 8, "key").')
    for column in columns:
        if not isinstance(column, (str, Column)):
            raise ColumnError(f"a key is a column name or a Column, not {column!r}.")
    return [F.col(column) if isinstance(column, str) else column for column in columns]
