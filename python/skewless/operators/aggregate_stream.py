"""The plan of `skewless.aggregate` on a stream: one level that keeps a partial per key, and below it, where
hot keys are named, one without state.

Separate from `aggregate` because a stream cannot look at its rows beforehand: the hot keys are those that the
user names, for as long as the query runs, or those that a task sees in its own Arrow batch. The first level
has no state, so the next start may name others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from skewless.operators.aggregates.aggregate import Aggregate
from skewless.operators.aggregates.levels import SLOT
from skewless.operators.aggregates.packets import PACKET, keeping_level, opening, packing_level, passing
from skewless.operators.aggregates.schemas import merger_of, schemas, to_arrow
from skewless.operators.columns import quoted
from skewless.operators.plan_splits import Split
from skewless.operators.split_groups import slot, split_groups

AUTO = "auto"
NO_TIMEOUT, PROCESSING_TIME = "NoTimeout", "ProcessingTimeTimeout"


def stream_splits(
    df: DataFrame, names: Sequence[str], hot: Sequence[Any] | str | None, partitions: int
) -> tuple[Split, ...]:
    """The slots of the keys that were named; a stream has no rows to count."""
    if not hot or hot == AUTO:
        return ()
    nothing = df.sparkSession.createDataFrame([], df.schema)
    return split_groups(nothing, quoted(names), partitions, 1.0, hot).splits


def stream_levels(
    df: DataFrame,
    names: Sequence[str],
    chosen: Aggregate,
    splits: Sequence[Split],
    hot_share: float | None,
    mode: str,
    timeout_ms: int | None,
) -> DataFrame:
    """With `splits` two levels, else one; `hot_share` of an Arrow batch makes a key hot in it."""
    keys, _, results = schemas(df, names, chosen)
    merger, key_types, own = merger_of(chosen), to_arrow(keys), quoted(names)
    packet = StructField(PACKET, BinaryType())
    packets = StructType([*keys, packet])
    zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    rows = to_arrow_schema(df.schema, timezone=zone)
    if splits:
        dealt = df.withColumn(SLOT, slot(df, own, {split.key_hash: split.slots for split in splits}))
        first = dealt.groupBy(*own, SLOT).applyInArrow(packing_level(merger, key_types), packets)
    else:
        first = df.mapInArrow(passing(merger, key_types, rows, hot_share), packets)
    kept = first.groupBy(*own).applyInPandasWithState(
        keeping_level(merger, key_types, mode == "update", timeout_ms, rows),
        StructType([packet]),
        StructType([packet]),
        mode,
        NO_TIMEOUT if timeout_ms is None else PROCESSING_TIME,
    )
    return kept.mapInArrow(opening(merger, key_types), StructType([*keys, *results]))
