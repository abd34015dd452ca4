"""`aggregate`: groups whose hot keys are worked on by many tasks, because two partial results make one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StructField, StructType

from skewless.errors import AggregateError, SettingError
from skewless.operators import catalyst
from skewless.operators.aggregate_stream import AUTO, stream_levels, stream_splits
from skewless.operators.aggregates import levels
from skewless.operators.aggregates.aggregate import Aggregate, Frames
from skewless.operators.aggregates.levels import BUCKET, PARTIAL, RESULT, SLOT
from skewless.operators.aggregates.pandas_frames import with_pandas
from skewless.operators.aggregates.schemas import merger_of, schemas, to_arrow
from skewless.operators.columns import quoted, with_keys
from skewless.operators.group_decision import GroupDecision, decided
from skewless.operators.plan_splits import Split
from skewless.operators.shuffles import shuffle_partitions
from skewless.operators.split_groups import slot, split_groups


def aggregate(
    df: DataFrame,
    *keys: str | Column,
    using: Aggregate | None = None,
    partial: Frames | None = None,
    merge: Frames | None = None,
    result: Frames | None = None,
    schema: StructType | str | None = None,
    result_schema: StructType | str | None = None,
    hot: Sequence[Any] | str | None = None,
    partitions: int | None = None,
    sample: float | None = None,
    mode: str = "update",
    timeout_ms: int | None = None,
) -> DataFrame:
    """One result per key: `result(merge(partial(rows), partial(rows), ...))`, with the key's columns in
    front.

        def longest(visits):
            return pa.table({"longest": [pc.max(visits["seconds"])]})

        def longer(partials):
            return pa.table({"longest": [pc.max(partials["longest"])]})

        skewless.aggregate(
            visits, "user", partial=longest, merge=longer, schema="longest double"
        )

    The functions take and give pyarrow Tables; see `Aggregate`, which `using=` takes in their place. A sample
    is counted at once to find hot keys. Their rows are dealt over partitions, and the partials that come of
    it are merged in a second level; all other keys are done in the first. If no key is hot there is one level
    only, as in `groupBy(*keys).applyInArrow`.

    hot         the hot keys, if they are known: values, or tuples where there are several columns. They are
                split however light they are. An empty list: one level, and nothing is sampled
    partitions  of the first level, which AQE then leaves as they are; default: Spark's own number
    sample      the share of rows to count. Default: about 200,000 rows, and at least 1 %
    mode        of a stream: "update" gives the result so far of each key in the batch, "append" one result
                when the key times out
    timeout_ms  of a stream: a key without rows for so long is forgotten (processing time)

    A stream has no sample: hot keys are those named in `hot`, or with "auto" those that are hot in an Arrow
    batch, whose rows its own task adds up. Without hot keys there is one level, which keeps a partial per
    key.
    """
    _check(df, partitions, sample, hot)
    chosen = _chosen(using, partial, merge, result, schema, result_schema)
    keyed, names = with_keys(df, keys)
    if df.isStreaming:
        _check_stream(partitions, sample, mode, timeout_ms)
        return _planned_stream(keyed, names, chosen, hot, mode, timeout_ms)
    if mode != "update" or timeout_ms is not None:
        raise SettingError("mode and timeout_ms are for streams, and this DataFrame is none. Leave them out.")
    return _planned(keyed, names, chosen, hot, partitions, sample)


def apply_in_pandas(
    groups: GroupedData | tuple[Any, ...],
    partial: Frames,
    merge: Frames,
    schema: StructType | str,
    result: Frames | None = None,
    result_schema: StructType | str | None = None,
    *,
    hot: Sequence[Any] | None = None,
    partitions: int | None = None,
    sample: float | None = None,
) -> DataFrame:
    """`aggregate` with functions of pandas DataFrames, for what `df.groupBy("k")` gives or for `(df, "k")`.

    Columns become pandas columns as in Spark's `applyInPandas`: whole numbers with nulls as floats.
    """
    df, keys = _groups(groups)
    _check(df, partitions, sample, hot)
    if df.isStreaming:
        raise AggregateError(
            "apply_in_pandas is for batch DataFrames, and this is a stream. Use skewless.aggregate, whose "
            "functions take and give pyarrow Tables."
        )
    chosen = _chosen(None, partial, merge, result, schema, result_schema)
    keyed, names = with_keys(df, keys)
    return _planned(keyed, names, with_pandas(chosen, keyed), hot, partitions, sample)


def _groups(groups: GroupedData | tuple[Any, ...]) -> tuple[DataFrame, tuple[str | Column, ...]]:
    if isinstance(groups, tuple) and len(groups) > 1:
        return groups[0], groups[1:]
    if isinstance(groups, tuple) or not hasattr(groups, "_jgd"):
        raise SettingError(
            f"apply_in_pandas was given {groups!r}; it takes what df.groupBy('k') gives, or (df, 'k')."
        )
    return groups._df, tuple(catalyst.grouping_columns(groups.count()))


def _check(
    df: DataFrame, partitions: int | None, sample: float | None, hot: Sequence[Any] | str | None
) -> None:
    if not hasattr(df, "isStreaming"):
        raise SettingError(f"aggregate takes a DataFrame, not {df!r}: aggregate(df, 'key', ...).")
    catalyst.require_classic(df, "aggregate")
    if partitions is not None and (
        isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1
    ):
        raise SettingError(f"partitions is {partitions!r}; it takes a whole number of at least 1.")
    if sample is not None and not 0 < sample <= 1:
        raise SettingError(f"sample is {sample}; it takes a share above 0 and at most 1.")
    if isinstance(hot, str) and not (hot == AUTO and df.isStreaming):
        raise SettingError(f"hot is {hot!r}; it takes a list of keys, such as ['user-1'], or None to search.")


def _check_stream(partitions: int | None, sample: float | None, mode: str, timeout_ms: int | None) -> None:
    if partitions is not None or sample is not None:
        raise SettingError(
            "partitions and sample are for batch DataFrames, and this is a stream; leave them out."
        )
    if mode not in ("update", "append"):
        raise SettingError(f"mode is {mode!r}; a stream's aggregate has the modes 'update' and 'append'.")
    if mode == "append" and timeout_ms is None:
        raise SettingError("mode 'append' gives a key's result when it times out: give timeout_ms= too.")
    if timeout_ms is not None and (isinstance(timeout_ms, bool) or timeout_ms < 1):
        raise SettingError(f"timeout_ms is {timeout_ms!r}; it takes a whole number of at least 1.")


def _chosen(
    using: Aggregate | None,
    partial: Frames | None,
    merge: Frames | None,
    result: Frames | None,
    schema: StructType | str | None,
    result_schema: StructType | str | None,
) -> Aggregate:
    if using is not None:
        if any(given is not None for given in (partial, merge, result, schema, result_schema)):
            raise SettingError("using= was given beside functions or schemas; give one or the other.")
        return using
    if partial is None or merge is None or schema is None:
        raise SettingError("an aggregate takes partial=, merge= and schema=, or using=.")
    if (result is None) != (result_schema is None):
        raise SettingError("result= and result_schema= belong together; give both or neither.")
    return Aggregate(partial, merge, schema, result, result_schema)


def _planned(
    df: DataFrame,
    names: list[str],
    chosen: Aggregate,
    hot: Sequence[Any] | None,
    partitions: int | None,
    sample: float | None,
) -> DataFrame:
    count = partitions or shuffle_partitions(df.sparkSession)
    if count < 2 or (hot is not None and not hot):
        why = "hot is empty" if count > 1 else "there is one partition only"
        return decided(_one_level(df, names, chosen, partitions), GroupDecision("one level", why, count))
    planned = split_groups(df, quoted(names), count, sample, hot)
    if not planned.splits:
        why = "no key is heavier than half a fair share, or none that can be split"
        one = _one_level(df, names, chosen, partitions)
        return decided(one, GroupDecision("one level", why, count, (), planned.why_not))
    done = _two_levels(df, names, chosen, planned.splits, count, partitions)
    why = f"hot keys: {len(planned.splits)}"
    return decided(done, GroupDecision("two levels", why, count, planned.splits, planned.why_not))


def _planned_stream(
    df: DataFrame,
    names: list[str],
    chosen: Aggregate,
    hot: Sequence[Any] | str | None,
    mode: str,
    timeout_ms: int | None,
) -> DataFrame:
    count = int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    splits = stream_splits(df, names, hot, count)
    hot_share = 1 / (2 * count) if hot == AUTO else None
    done = stream_levels(df, names, chosen, splits, hot_share, mode, timeout_ms)
    if splits:
        why = f"a stream with state in the second; hot keys named: {len(splits)}"
        return decided(done, GroupDecision("two levels", why, count, splits))
    why = "a stream, and no hot key is named"
    if hot_share is not None:
        why = f"a stream; a task adds up keys with at least {hot_share:.1%} of its Arrow batch"
    return decided(done, GroupDecision("one level", why, count))


def _one_level(df: DataFrame, names: list[str], chosen: Aggregate, partitions: int | None) -> DataFrame:
    keys, _, results = schemas(df, names, chosen)
    grouped = df if partitions is None else df.repartition(partitions, *quoted(names))
    level = levels.only_level(merger_of(chosen), to_arrow(keys))
    return grouped.groupBy(*quoted(names)).applyInArrow(level, StructType([*keys, *results]))


def _two_levels(
    df: DataFrame,
    names: list[str],
    chosen: Aggregate,
    splits: Sequence[Split],
    count: int,
    partitions: int | None,
) -> DataFrame:
    keys, partials, results = schemas(df, names, chosen)
    merger, key_types, own = merger_of(chosen), to_arrow(keys), quoted(names)
    dealt = df.withColumn(SLOT, slot(df, own, {split.key_hash: split.slots for split in splits}))
    # named, since an input that is partitioned by the keys already would do for the groups
    by_slot = (*own, F.col(SLOT))
    dealt = dealt.repartition(*by_slot) if partitions is None else dealt.repartition(partitions, *by_slot)
    packed = StructType([*keys, StructField(PARTIAL, ArrayType(partials)), StructField(RESULT, results)])
    first = dealt.groupBy(*own, SLOT).applyInArrow(levels.first_level(merger, key_types), packed)
    done = F.col(RESULT).isNotNull()
    # one group per hot key, and one per bucket of keys that are done
    groups = [F.when(~done, key).alias(f"__skewless_key_{i}") for i, key in enumerate(own)]
    bucket = F.when(done, F.pmod(F.hash(*own), F.lit(count))).otherwise(-1)
    level = levels.second_level(merger, key_types)
    return first.groupBy(*groups, bucket.alias(BUCKET)).applyInArrow(level, StructType([*keys, *results]))
