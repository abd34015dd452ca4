"""Which joins of an unmodified query adaptive execution (AQE) would split if a key were hot, which it
declines, and which setting changes that.

The facts are those of Spark's rule `OptimizeSkewedJoin` (4.2.0), read off the physical plan before it runs:
the rule is given materialised shuffles, so sizes are named as the last condition and not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from skewless.errors import SettingError
from skewless.operators import catalyst

ADAPTIVE = "spark.sql.adaptive.enabled"
SKEW_JOIN = "spark.sql.adaptive.skewJoin.enabled"
FORCE = "spark.sql.adaptive.forceOptimizeSkewedJoin"
THRESHOLD = "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes"
FACTOR = "spark.sql.adaptive.skewJoin.skewedPartitionFactor"
BUCKETS = "spark.sql.sources.bucketing.enabled"

_SIDES = {
    "Inner": ("left", "right"),
    "Cross": ("left", "right"),
    "LeftOuter": ("left",),
    "LeftSemi": ("left",),
    "LeftAnti": ("left",),
    "RightOuter": ("right",),
}
_WORDS = {
    "Inner": "inner",
    "LeftOuter": "left outer",
    "RightOuter": "right outer",
    "FullOuter": "full outer",
    "LeftSemi": "left semi",
    "LeftAnti": "left anti",
    "ExistenceJoin": "existence",
    "LeftSingle": "scalar subquery",
}
_REWRITE = "skewless.join"


@dataclass(frozen=True)
class Decline:
    """Why AQE leaves a join as it is, and what would mend that."""

    why: str
    mend: str


@dataclass(frozen=True)
class JoinSkew:
    """One join of a query. `sides` are those that AQE may split; empty where it splits none."""

    join: str
    broadcast: bool
    sides: tuple[str, ...]
    declines: tuple[Decline, ...]

    def __str__(self) -> str:
        if self.broadcast:
            return f"{self.join}\n  broadcast: no row is shuffled by its key, so no key can be too hot"
        if self.declines:
            return "\n".join([self.join, *(f"  declined: {d.why}. {d.mend}." for d in self.declines)])
        return f"{self.join}\n  split by AQE if the hot key is on the {' or '.join(self.sides)}"


@dataclass(frozen=True)
class SkewReport:
    """Every join of a query, topmost first."""

    joins: tuple[JoinSkew, ...]
    threshold: str
    factor: str

    @property
    def declined(self) -> tuple[JoinSkew, ...]:
        return tuple(join for join in self.joins if join.declines)

    def __str__(self) -> str:
        if not self.joins:
            return "no join by keys in this query"
        lines = [str(join) for join in self.joins]
        if any(not join.broadcast for join in self.joins):
            lines.append(
                f"AQE takes a partition for skewed above {self.threshold} ({THRESHOLD}) and above "
                f"{self.factor} times the median ({FACTOR}), and splits it by map tasks, so it needs two or "
                "more of them."
            )
        if sum(not join.broadcast for join in self.joins) > 1 and self.declined:
            lines.append("One join that needs a further shuffle ends the handling of all joins of its plan.")
        return "\n".join(lines)


def explain_skew(df: DataFrame) -> SkewReport:
    """For each join of `df` by keys: whether AQE would split a hot key, why not, and what would mend it.

    print(skewless.explain_skew(orders.join(users, "user", "full")))
    """
    catalyst.require_classic(df, "explain_skew")
    if df.isStreaming:
        raise SettingError(
            "explain_skew reads the plan of a batch query, and this DataFrame is a stream, whose joins AQE "
            "leaves alone. Use skewless.balance(spark)."
        )
    conf = df.sparkSession.conf
    joins = tuple(_joins(df.sparkSession, catalyst.physical_plan(df), None))
    return SkewReport(joins, str(conf.get(THRESHOLD)), str(conf.get(FACTOR)))


def _joins(spark: SparkSession, node: Any, above: str | None) -> Iterator[JoinSkew]:
    """The joins at and below `node`; `above` is what needs the partitioning that `node` gives."""
    name = catalyst.name_of(node)
    if name in ("SortMergeJoinExec", "ShuffledHashJoinExec", "BroadcastHashJoinExec"):
        yield _join_skew(spark, node, name, above)
    children = catalyst.items(node.children())
    needs = [catalyst.name_of(needed) for needed in catalyst.items(node.requiredChildDistribution())]
    for child, needed in zip(children, needs, strict=True):
        if name.endswith("ExchangeExec"):
            yield from _joins(spark, child, None)
        else:
            clustered = needed.endswith("ClusteredDistribution")
            yield from _joins(spark, child, name.removesuffix("Exec") if clustered else above)


def _join_skew(spark: SparkSession, node: Any, name: str, above: str | None) -> JoinSkew:
    how = catalyst.name_of(node.joinType())
    keys = ", ".join(
        f"{_text(left)} = {_text(right)}"
        for left, right in zip(catalyst.items(node.leftKeys()), catalyst.items(node.rightKeys()), strict=True)
    )
    title = f"{_WORDS.get(how, how)} join on {keys} ({name.removesuffix('Exec')})"
    if name == "BroadcastHashJoinExec":
        return JoinSkew(title, True, (), ())
    declines = [
        *_by_settings(spark),
        *_by_type(how),
        *(
            d
            for side, child in (("left", node.left()), ("right", node.right()))
            for d in _by_input(side, child)
        ),
        *_by_what_is_above(spark, above),
    ]
    return JoinSkew(title, False, () if declines else _SIDES[how], tuple(declines))


def _text(expression: Any) -> str:
    return re.sub(r"#\d+L?", "", str(expression))


def _by_settings(spark: SparkSession) -> Iterator[Decline]:
    for setting in (ADAPTIVE, SKEW_JOIN):
        if str(spark.conf.get(setting)) != "true":
            yield Decline(f"{setting} is false", f"Set {setting}=true")


def _by_type(how: str) -> Iterator[Decline]:
    if how == "FullOuter":
        yield Decline(
            "a full outer join must give unmatched rows of both sides, so AQE splits neither",
            f"No setting changes that; use {_REWRITE}",
        )
    elif how == "ExistenceJoin":
        yield Decline(
            "AQE splits no existence join (EXISTS or IN under OR)",
            f"No setting changes that; use {_REWRITE} of type left with right's distinct keys and a flag, "
            "then filter by the flag",
        )
    elif how not in _SIDES:
        yield Decline(f"AQE splits no {_WORDS.get(how, how)} join", "No setting changes that")


def _by_input(side: str, child: Any) -> Iterator[Decline]:
    """AQE wants a shuffle of Spark's own right under the join or under its sort."""
    node = child
    while catalyst.name_of(node) in ("SortExec", "WholeStageCodegenExec", "InputAdapter"):
        node = node.children().head()
    name = catalyst.name_of(node)
    if name != "ShuffleExchangeExec":
        reads = [catalyst.name_of(leaf) for leaf in catalyst.items(node.collectLeaves())]
        mend = (
            f"If it is a bucketed table, {BUCKETS}=false brings the shuffle back"
            if "FileSourceScanExec" in reads and name in ("FileSourceScanExec", "ProjectExec", "FilterExec")
            else f"Use {_REWRITE}"
        )
        yield Decline(
            f"its {side} side has no shuffle right under the join ({name.removesuffix('Exec')})", mend
        )
    elif str(node.shuffleOrigin()) != "ENSURE_REQUIREMENTS":
        yield Decline(
            f"its {side} side comes from a repartition of the query, which AQE keeps as it is",
            "Leave the repartition out",
        )


def _by_what_is_above(spark: SparkSession, above: str | None) -> Iterator[Decline]:
    if above is not None and str(spark.conf.get(FORCE)) != "true":
        yield Decline(
            f"{above} above it needs the rows of a key in one place and has no shuffle of its own",
            f"Set {FORCE}=true, for one more shuffle, or use {_REWRITE}",
        )
