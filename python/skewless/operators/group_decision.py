"""What was decided for groups with hot keys, and why; kept with the DataFrame that came of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame

from skewless.errors import SettingError
from skewless.operators.plan_splits import Split

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupDecision:
    """What `skewless.aggregate` or `skewless.window` did and why. `splits` is empty where keys stay whole;
    `why_not` says of heavy keys that stay whole why they do."""

    used: str
    why: str
    partitions: int
    splits: tuple[Split, ...] = ()
    why_not: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.used}: {self.why}"]
        lines += [
            f"  {split.name}: {split.share:.0%} of the rows, dealt over {split.width} of {self.partitions} "
            "partitions"
            for split in self.splits
        ]
        return "\n".join([*lines, *(f"  left whole, {reason}" for reason in self.why_not)])


_decisions: WeakKeyDictionary[DataFrame, GroupDecision] = WeakKeyDictionary()


def decided(df: DataFrame, decision: GroupDecision) -> DataFrame:
    _decisions[df] = decision
    _log.info("%s: %s", decision.used, decision.why)
    return df


def explain_aggregate(df: DataFrame) -> GroupDecision:
    """What `skewless.aggregate`, `apply_in_pandas` or `window` decided for the DataFrame that it returned."""
    if df not in _decisions:
        raise SettingError(
            "this DataFrame is not one that skewless.aggregate, apply_in_pandas or window returned; a select "
            "or filter of it is another DataFrame. Keep what the call returned and ask about that."
        )
    return _decisions[df]
