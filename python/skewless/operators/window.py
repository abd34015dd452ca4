"""`window`: running sums, counts and ranks over keys of which some are hot, cut into ranges of the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skewless.errors import SettingError, SkewlessError, WindowError
from skewless.operators import catalyst
from skewless.operators.cut_window import Windows, cut_window
from skewless.operators.group_decision import GroupDecision, decided
from skewless.operators.plan_splits import Split
from skewless.operators.repartition import key_columns
from skewless.operators.shuffles import shuffle_partitions
from skewless.operators.split_groups import split_groups
from skewless.operators.window_functions import Function, function_of, why_whole
from skewless.operators.window_ranges import BOUNDS, KEY_HASH, Order, bounds

FRAMES = ("range", "rows")

Keys = str | Column | Sequence[str | Column]


def window(
    df: DataFrame,
    partition_by: Keys,
    order_by: Keys,
    columns: Mapping[str, Column],
    *,
    frame: str = "range",
    hot: Sequence[Any] | None = None,
    partitions: int | None = None,
    sample: float | None = None,
) -> DataFrame:
    """`df` with more columns, each a window function from the first row of its key up to the present one.

        skewless.window(
            trades,
            "symbol",
            "at",
            {"volume": F.sum("size"), "nth": F.row_number(), "before": F.lag("price")},
        )

    The same as `df.withColumn("volume", F.sum("size").over(Window.partitionBy("symbol").orderBy("at")))` and
    so on. A sample is counted at once to find hot keys. Their rows are cut into ranges of the order, over
    which many tasks work; a first pass adds up what each range sends on to those behind it. If no key is hot
    it is Spark's own window.

    columns     bare calls of row_number, rank, dense_rank, count, sum, min, max, lag and lead
    frame       of sums, counts, min and max: "range" takes in all rows with the present row's order values,
                Spark's default; "rows" ends with the present row
    hot         the hot keys, if they are known: values, or tuples where there are several columns. They are
                cut however light they are. An empty list: Spark's own window, and nothing is sampled
    partitions  of the cut window, which AQE then leaves as they are; default: Spark's own number
    sample      the share of rows to count. Default: about 200,000 rows, and at least 1 %
    """
    _check(df, columns, frame, partitions, sample, hot)
    functions = [function_of(name, column) for name, column in columns.items()]
    asked = _asked(df, partition_by, order_by, functions, frame)
    plain = asked.plain()
    count = partitions or shuffle_partitions(df.sparkSession)
    why = _why_plain_at_once(asked, plain, count, hot)
    if why is not None:
        return decided(plain, GroupDecision("plain window", why, count))
    return _planned(asked, plain, count, partitions, sample, hot)


def _asked(
    df: DataFrame, partition_by: Keys, order_by: Keys, functions: Sequence[Function], frame: str
) -> Windows:
    computed: dict[str, Column] = {}

    def named(column: Column, name: str) -> Column:
        if catalyst.is_named(column):
            return column
        computed[f"__skewless_{name}"] = column
        return F.col(f"__skewless_{name}")

    keys = tuple(named(key, f"key_{i}") for i, key in enumerate(_columns(partition_by)))
    order = []
    for i, column in enumerate(_columns(order_by)):
        by, descending, nulls_last = catalyst.sorted_by(column)
        order.append(Order(named(by, f"order_{i}"), descending, nulls_last))
    own = [
        f if f.value is None else Function(f.name, f.kind, f.column, named(f.value, f"value_{i}"), f.offset)
        for i, f in enumerate(functions)
    ]
    rows = df.select("*", *(column.alias(name) for name, column in computed.items()))
    return Windows(df, rows, keys, tuple(order), tuple(own), frame)


def _columns(given: Keys) -> list[Column]:
    return key_columns((given,) if isinstance(given, (str, Column)) else tuple(given))


def _check(
    df: DataFrame,
    columns: Mapping[str, Column],
    frame: str,
    partitions: int | None,
    sample: float | None,
    hot: Sequence[Any] | None,
) -> None:
    if not hasattr(df, "isStreaming"):
        raise SettingError(f"window takes a DataFrame, not {df!r}: window(df, 'key', 'time', ...).")
    catalyst.require_classic(df, "window")
    if df.isStreaming:
        raise WindowError(
            "skewless.window is for batch DataFrames, and this is a stream, where Spark has no windows over "
            "rows. Use foreachBatch, or an aggregate over F.window."
        )
    if not isinstance(columns, Mapping) or not columns:
        raise SettingError(f"columns is {columns!r}; it takes names and calls: {{'n': F.row_number()}}.")
    taken = sorted(set(columns) & set(df.columns))
    if taken:
        raise SettingError(f"columns names {taken}, which the DataFrame has. Give other names.")
    if frame not in FRAMES:
        raise WindowError(
            f"frame is {frame!r}; a window that is cut starts with the first row of its key and ends with "
            "the present one: 'range' or 'rows'. For other frames use Spark's own over()."
        )
    if partitions is not None and (
        isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1
    ):
        raise SettingError(f"partitions is {partitions!r}; it takes a whole number of at least 1.")
    if sample is not None and not 0 < sample <= 1:
        raise SettingError(f"sample is {sample}; it takes a share above 0 and at most 1.")
    if isinstance(hot, str):
        raise SettingError(f"hot is {hot!r}; it takes a list of keys, such as ['user-1'], or None to search.")


def _why_plain_at_once(asked: Windows, plain: DataFrame, count: int, hot: Sequence[Any] | None) -> str | None:
    """Why it is Spark's own window whatever the keys are."""
    if hot is not None and not hot:
        return "hot is empty"
    if count < 2:
        return "there is one partition only"
    if not (catalyst.same_content(asked.df) and catalyst.deterministic(plain)):
        return (
            "the rows are read twice, and it is not certain that they are the same both times: only files, "
            "ranges and literal rows below selects, filters, joins and unions are. Write them to a file first"
        )
    compared = asked.rows.select(*asked.keys, *(one.column for one in asked.order)).schema
    if any("collate" in field.dataType.simpleString() for field in compared):
        return (
            "a key or an order column is of a collation, in which not every comparison is Spark's own sort's"
        )
    if str(asked.df.sparkSession.conf.get("spark.sql.adaptive.enabled")).lower() != "true":
        return (
            "AQE is off, so the first pass would have to end within spark.sql.broadcastTimeout. Set "
            "spark.sql.adaptive.enabled=true"
        )
    return why_whole(asked.functions, asked.types(plain), asked.order)


def _planned(
    asked: Windows,
    plain: DataFrame,
    count: int,
    partitions: int | None,
    sample: float | None,
    hot: Sequence[Any] | None,
) -> DataFrame:
    try:
        splits, why_not, cut = _hot(asked, count, sample, hot)
    except SkewlessError:
        raise
    except Exception as error:  # what fails here need not fail in the user's own query
        first_line = str(error).strip().split("\n", 1)[0]
        return decided(plain, GroupDecision("plain window", f"the sample failed: {first_line}", count))
    if cut is None:
        why = "no key is heavier than half a fair share, or none that can be cut"
        return decided(plain, GroupDecision("plain window", why, count, (), why_not))
    most = max(split.width for split in splits)
    done = cut_window(asked, asked.types(plain), cut, most, partitions)
    return decided(done, GroupDecision("cut window", f"hot keys: {len(splits)}", count, splits, why_not))


def _hot(
    asked: Windows, count: int, sample: float | None, hot: Sequence[Any] | None
) -> tuple[tuple[Split, ...], tuple[str, ...], DataFrame | None]:
    """The keys that are cut, why others are not, and the bounds of those that are."""
    by_order = F.xxhash64(*(one.column for one in asked.order))
    planned = split_groups(asked.rows, asked.keys, count, sample, hot, by_order)
    if not planned.splits:
        return (), planned.why_not, None
    slots = {split.key_hash: split.slots for split in planned.splits}
    cut = bounds(asked.rows, asked.keys, asked.order, slots, sample)
    found = dict(map(tuple, cut.select(KEY_HASH, F.size(BOUNDS)).collect()))
    whole_ones = tuple(
        f"{split.name}: no sampled rows of it that differ in order"
        for split in planned.splits
        if split.key_hash not in found
    )
    splits = tuple(
        replace(split, slots=split.slots[: found[split.key_hash] + 1])
        for split in planned.splits
        if split.key_hash in found
    )
    return splits, planned.why_not + whole_ones, cut if splits else None
