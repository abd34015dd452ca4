"""The plan of `skewless.aggregate` on a stream: a first level without state, a second that keeps one partial
per key.

Separate from `aggregate` because a stream cannot look at its rows beforehand: the hot keys are those that the
user names, for as long as the query runs. The first level has no state, so the next start may name others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StructField, StructType

from skewless.operators.aggregates.aggregate import Aggregate
from skewless.operators.aggregates.levels import SLOT
from skewless.operators.aggregates.packets import PACKET, keeping_level, opening, packing_level
from skewless.operators.aggregates.schemas import merger_of, schemas, to_arrow
from skewless.operators.columns import quoted
from skewless.operators.plan_splits import Split
from skewless.operators.split_groups import slot, split_groups

NO_TIMEOUT, PROCESSING_TIME = "NoTimeout", "ProcessingTimeTimeout"


def stream_splits(
    df: DataFrame, names: Sequence[str], hot: Sequence[Any] | None, partitions: int
) -> tuple[Split, ...]:
    """The slots of the keys that were named; a stream has no rows to count."""
    if not hot:
        return ()
    nothing = df.sparkSession.createDataFrame([], df.schema)
    return split_groups(nothing, quoted(names), partitions, 1.0, hot).splits


def stream_levels(
    df: DataFrame,
    names: Sequence[str],
    chosen: Aggregate,
    splits: Sequence[Split],
    mode: str,
    timeout_ms: int | None,
) -> DataFrame:
    keys, _, results = schemas(df, names, chosen)
    merger, key_types, own = merger_of(chosen), to_arrow(keys), quoted(names)
    packet = StructField(PACKET, BinaryType())
    slots = {split.key_hash: split.slots for split in splits}
    dealt = df.withColumn(SLOT, slot(df, own, slots)) if slots else df
    groups = [*own, F.col(SLOT)] if slots else own
    first = dealt.groupBy(*groups).applyInArrow(packing_level(merger, key_types), StructType([*keys, packet]))
    kept = first.groupBy(*own).applyInPandasWithState(
        keeping_level(merger, key_types, mode == "update", timeout_ms),
        StructType([packet]),
        StructType([packet]),
        mode,
        NO_TIMEOUT if timeout_ms is None else PROCESSING_TIME,
    )
    return kept.mapInArrow(opening(merger, key_types), StructType([*keys, *results]))
