"""A table for one batch job, in one call: count the keys of a DataFrame as Spark hashes them, and plan.

Separate from `repartition` because counting runs two Spark jobs and planning takes a policy; the table that
comes out is a value, which `repartition` takes like any other.
"""

from __future__ import annotations

import logging

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skewless import policies
from skewless.errors import ColumnError, SettingError
from skewless.model.limits import Limits
from skewless.model.rules import MAX_PARTITIONS
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.operators.repartition import key_columns
from skewless.policies import Policy
from skewless.spark.gateway import Gateway

log = logging.getLogger("skewless")

TRACKED_KEYS = 100_000


def plan(
    df: DataFrame,
    partitions: int,
    *columns: str | Column,
    policy: str | Policy = "mixed",
    max_imbalance: float = Limits.max_imbalance,
    max_entries: int = Limits.max_entries,
) -> Table:
    """The table that levels `df.repartition(partitions, *columns)`, by rows.

        table = skewless.plan(df, 64, "user")
        level = skewless.repartition(df, 64, "user", table=table)

    Reads the key columns of `df` once. The heaviest 100,000 keys may move, all others stay at home and count
    as load there. A table of this kind moves keys: one key with more rows than a fair share stays heavier.
    """
    _check(df, partitions)
    choose = policies.get(policy) if isinstance(policy, str) else policy
    limits = Limits(max_imbalance=max_imbalance, max_entries=max_entries)
    snapshot = _counted(df, partitions, key_columns(columns))
    made = choose(snapshot, Table(partitions), limits)
    log.info(
        "a table of %d entries for %d partitions: imbalance %.3f by plain hashing, %.3f with it",
        len(made.table),
        partitions,
        made.imbalance_before,
        made.imbalance_after,
    )
    return made.table


def _check(df: DataFrame, partitions: int) -> None:
    if not isinstance(df, DataFrame):
        raise SettingError(f"plan takes a DataFrame, not {df!r}: plan(df, 8, 'key').")
    if df.isStreaming:
        raise SettingError(
            "plan counts stored rows, and this DataFrame is a stream. Give it a sample of what the stream "
            "read, or let skewless.balance(spark) plan while the stream runs."
        )
    if (
        isinstance(partitions, bool)
        or not isinstance(partitions, int)
        or not 1 <= partitions <= MAX_PARTITIONS
    ):
        raise SettingError(
            f"partitions is {partitions!r}; it takes a whole number of at least 1: plan(df, 8, 'key')."
        )


def _counted(df: DataFrame, partitions: int, keys: list[Column]) -> Snapshot:
    """Rows per key hash of the heaviest keys, and per partition of all others."""
    key_hash = Gateway(df.sparkSession).key_hash(keys)
    try:
        counts = df.select(key_hash.alias("h")).groupBy("h").count().persist()
    except AnalysisException as error:
        raise ColumnError(
            f"the key cannot be read: {error}. Name columns of the DataFrame that Spark can hash."
        ) from error
    try:
        home = F.pmod(F.col("h").cast("long"), F.lit(partitions)).alias("home")
        totals = counts.groupBy(home).agg(F.sum("count").alias("rows")).collect()
        heaviest = counts.orderBy(F.desc("count"), "h").limit(TRACKED_KEYS).collect()
    finally:
        counts.unpersist()
    hashes = np.array([row[0] for row in heaviest], dtype=np.int32)
    rows = np.array([row[1] for row in heaviest], dtype=np.float64)
    others = np.zeros(partitions)
    for total in totals:
        others[int(total[0])] = total[1]
    others -= np.bincount(hashes.astype(np.int64) % partitions, weights=rows, minlength=partitions)
    return Snapshot.of(Table(partitions), hashes, rows, remainder_costs=others)
