"""`join`: `DataFrame.join` with hot keys split over many partitions where Spark itself would not do it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame, SparkSession

from skewless.errors import ColumnError, JoinError, SettingError
from skewless.operators import catalyst
from skewless.operators.catalyst import LogicalJoin
from skewless.operators.explain_skew import FACTOR, THRESHOLD, JoinSkew, explain_skew
from skewless.operators.hot_keys import Sketch, sketch
from skewless.operators.plan_splits import Split, Splits, plan_splits
from skewless.operators.shuffles import shuffle_partitions
from skewless.operators.split_join import HOW, PRESERVED, split_join, turn

_log = logging.getLogger(__name__)

SIDES = {
    "INNER": ("left", "right"),
    "LEFT OUTER": ("left", "right"),
    "RIGHT OUTER": ("right", "left"),
    "FULL OUTER": ("left", "right"),
    "LEFT SEMI": ("left",),
    "LEFT ANTI": ("left",),
}
"""The sides that a join can be split on, the cheaper one first."""


@dataclass(frozen=True)
class JoinDecision:
    """What `skewless.join` did and why. `splits` is empty where it is Spark's plain join; `why_not` says of
    heavy keys that stay whole why they do."""

    used: str
    why: str
    partitions: int
    splits: tuple[Split, ...] = ()
    why_not: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.used}: {self.why}"]
        for split in self.splits:
            lines.append(
                f"  {split.name}: {split.share:.0%} of the work, {split.side} rows dealt over {split.width} "
                f"of {self.partitions} partitions, at most {split.copies:,.0f} copies on the other side"
            )
        return "\n".join([*lines, *(f"  left whole, {reason}" for reason in self.why_not)])


_decisions: WeakKeyDictionary[DataFrame, JoinDecision] = WeakKeyDictionary()


def join(
    left: DataFrame,
    right: DataFrame,
    on: str | Column | list[str] | list[Column],
    how: str = "inner",
    *,
    hot: Sequence[Any] | None = None,
    partitions: int | None = None,
    max_replication: float = 1.0,
    sample: float | None = None,
    deal_by: Sequence[str] | None = None,
    leave_to_aqe: bool = True,
) -> DataFrame:
    """`left.join(right, on, how)` with the same rows and schema, hot keys split over several partitions.

        joined = skewless.join(clicks, users, "user", "full")
        print(skewless.explain_join(joined))

    The rows of a hot key on one side are dealt out by their content, or by the task that reads them where a
    retry could see other content (after a sum of floats, code over partitions, ...). The other side's rows of
    that key are copied to each place. A sample of both sides is counted at once to find hot keys; the join
    itself is lazy.

    hot              the hot keys, if they are known: values, or tuples where there are several columns. They
                     are split however light they are
    partitions       of the split join, which AQE then leaves as they are; Spark raises it to its own number
                     if that is higher. Default: Spark's own number, which AQE may merge if they are small
    max_replication  copies of a side's rows, at most this share of its rows, by the sample and three standard
                     errors; exact with sample=1.0
    sample           the share of rows to count. Default: about 200,000 rows of each side, and at least 1 %
    deal_by          columns whose content deals out a split side's rows, which must be the same in a retry.
                     Default: all, which a wide table pays for with columns that it would else not read
    leave_to_aqe     False if a groupBy, a window or a join on the same keys follows: AQE then declines what
                     it would do for the join alone, and this call cannot see what follows
    """
    _check(left, right, partitions, max_replication, sample, hot)
    plain = left.join(right, on, how)
    found = _logical_join(plain, how)
    count = max(partitions or 0, shuffle_partitions(left.sparkSession))
    contents = _contents(found, deal_by)
    skew = next(iter(explain_skew(plain).joins), None)
    why = _why_plain_at_once(found, skew, count)
    if why is not None:
        return _decided(plain, JoinDecision("plain join", why, count))
    counted = sketch(found, (contents.get("left"), contents.get("right")), count, sample, hot)
    planned = _plan(found, counted, contents, count, max_replication, hot is not None)
    if not planned.splits:
        why = "no key is heavier than half a fair share, or none that can be split"
        return _decided(plain, JoinDecision("plain join", why, count, (), planned.why_not))
    if leave_to_aqe and skew is not None and _aqe_splits(found, skew, counted, planned.splits, count):
        why = "AQE splits these partitions itself (leave_to_aqe=False if a groupBy or window follows)"
        return _decided(plain, JoinDecision("plain join, left to AQE", why, count, (), planned.why_not))
    done = split_join(found, planned.splits, contents, partitions)
    why = f"hot keys: {len(planned.splits)}; {_why_not_aqe(skew, leave_to_aqe)}"
    return _decided(done, JoinDecision("split join", why, count, planned.splits, planned.why_not))


def explain_join(df: DataFrame) -> JoinDecision:
    """What `skewless.join` decided for the DataFrame that it returned."""
    if df not in _decisions:
        raise SettingError(
            "this DataFrame is not one that skewless.join returned; a select or filter of it is another "
            "DataFrame. Keep what join returned and ask about that."
        )
    return _decisions[df]


def _decided(df: DataFrame, decision: JoinDecision) -> DataFrame:
    _decisions[df] = decision
    _log.info("skewless.join: %s: %s", decision.used, decision.why)
    return df


def _check(
    left: DataFrame,
    right: DataFrame,
    partitions: int | None,
    max_replication: float,
    sample: float | None,
    hot: Sequence[Any] | None,
) -> None:
    for side in (left, right):
        if not hasattr(side, "isStreaming"):
            raise SettingError(f"a side of the join is {side!r}; both are DataFrames.")
        catalyst.require_classic(side, "join")
        if side.isStreaming:
            raise JoinError(
                "skewless.join is for batch DataFrames, and one side is a stream. Join it as usual and let "
                "skewless.balance(spark) level the query."
            )
    if partitions is not None and (
        isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1
    ):
        raise SettingError(f"partitions is {partitions!r}; it takes a whole number of at least 1.")
    if max_replication < 0:
        raise SettingError(f"max_replication is {max_replication}; it takes a share of at least 0.")
    if sample is not None and not 0 < sample <= 1:
        raise SettingError(f"sample is {sample}; it takes a share above 0 and at most 1.")
    if hot is not None and (isinstance(hot, str) or not hot):
        raise SettingError(f"hot is {hot!r}; it takes a list of keys, such as ['user-1'], or None to search.")


def _logical_join(plain: DataFrame, how: str) -> LogicalJoin:
    found = catalyst.logical_join(plain)
    if found is None or not found.keys or found.how not in HOW:
        raise JoinError(
            f"a join of type {how!r} without an equality of a left and a right column has no keys to split. "
            "Give on= a column name or a condition with left.a == right.b, or use DataFrame.join."
        )
    return found


def _contents(found: LogicalJoin, deal_by: Sequence[str] | None) -> dict[str, Column]:
    """What deals out the rows of each side that has something to deal by."""
    sides = {"left": found.left, "right": found.right}
    names = {side: set(df.columns) for side, df in sides.items()}
    if deal_by is not None and not any(set(deal_by) <= columns for columns in names.values()):
        raise ColumnError(
            f"deal_by is {list(deal_by)}; neither side has all of these columns. Name columns of one."
        )
    hashes = {
        side: turn(df, deal_by if deal_by and set(deal_by) <= names[side] else None)
        for side, df in sides.items()
    }
    return {side: content for side, content in hashes.items() if content is not None}


def _why_plain_at_once(found: LogicalJoin, skew: JoinSkew | None, partitions: int) -> str | None:
    """Why it is the plain join whatever the keys are."""
    if skew is None:
        return "Spark plans no join by keys here (a side may be empty)"
    if skew.broadcast:
        return "a side is small enough to broadcast, so no row is shuffled by its key"
    if partitions < 2:
        return "there is one partition only"
    if not _sides(found):
        return (
            "unmatched rows would be looked for in a second reading, and an input is not deterministic, or "
            "takes rows as they come (limit, sample, dropDuplicates, window)"
        )
    return None


def _sides(found: LogicalJoin) -> tuple[str, ...]:
    """The sides that may be split. To copy a preserved side takes a second look at both inputs, which must
    then give the same rows again."""
    preserved = PRESERVED.get(found.how, ())
    return tuple(
        side for side in SIDES[found.how] if found.repeatable or not any(other != side for other in preserved)
    )


def _plan(
    found: LogicalJoin,
    counted: Sketch,
    contents: dict[str, Column],
    partitions: int,
    max_replication: float,
    given: bool,
) -> Splits:
    """Inner joins choose a side per key; others have one side for all keys, the one that gains most."""
    sides = tuple(side for side in _sides(found) if side in contents)
    choices = [sides] if found.how == "INNER" and sides else [(side,) for side in sides]
    pairs = found.how not in ("LEFT SEMI", "LEFT ANTI")
    plans = [plan_splits(counted, choice, partitions, max_replication, pairs, given) for choice in choices]
    return max(plans, key=lambda plan: plan.gain, default=Splits((), 0.0, ("no column can be hashed",)))


def _aqe_splits(
    found: LogicalJoin, skew: JoinSkew, counted: Sketch, splits: Sequence[Split], partitions: int
) -> bool:
    """Whether AQE would split the partitions of all these keys: by type, plan and size."""
    rows = {"left": counted.left_rows, "right": counted.right_rows}
    hashes = {split.key_hash: split.side for split in splits}
    conf = found.left.sparkSession.conf
    for key in counted.keys:
        side = hashes.get(key.key_hash)
        if side is None:
            continue
        hot_rows = (key.left if side == "left" else key.right).rows
        row_bytes = catalyst.row_bytes(found.left if side == "left" else found.right)
        median_rows = max(0.0, rows[side] - hot_rows) / partitions
        threshold = _bytes(found.left.sparkSession, str(conf.get(THRESHOLD)))
        large = hot_rows * row_bytes > threshold and hot_rows > float(str(conf.get(FACTOR))) * median_rows
        if side not in skew.sides or not large:
            return False
    return True


def _bytes(spark: SparkSession, text: str) -> int:
    java: Any = spark._jvm
    return int(java.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


def _why_not_aqe(skew: JoinSkew | None, leave_to_aqe: bool) -> str:
    if skew is not None and skew.declines:
        return f"AQE declines: {skew.declines[0].why}"
    if not leave_to_aqe:
        return "leave_to_aqe=False"
    return "AQE takes their partitions for too small, or does not split that side"
