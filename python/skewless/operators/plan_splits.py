"""Which keys of a join are split, on which side, how wide, and over which partitions: pure, from a `Sketch`.

A key's load is its rows on both sides plus the pairs that it makes. Split over m partitions, each of them
does 1/m of the split side's rows and of the pairs, and all of the other side's rows. With 8 partitions, a key
with 60 rows of 100 on the left and one on the right:

    whole   60 + 1 + 60 = 121 of a total of about 240: four fair shares on one partition
    m = 8   60/8 + 1 + 60/8 = 16 on each, for 7 copies of one row
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from skewless.operators.hot_keys import KeyRows, SideRows, Sketch

FINENESS = 4
"""A split key has about so many slots per fair share, so that they fit in beside what else there is."""


@dataclass(frozen=True)
class Split:
    """One key dealt over `slots`, numbers that Spark's hash sends to different partitions."""

    key_hash: int
    name: str
    side: str
    slots: tuple[int, ...]
    share: float
    copies: float

    @property
    def width(self) -> int:
        return len(self.slots)


@dataclass(frozen=True)
class Splits:
    """The splits of one join; `why_not` says of heavy keys that are left whole why they are."""

    splits: tuple[Split, ...]
    gain: float
    why_not: tuple[str, ...]


@dataclass(frozen=True)
class _Key:
    """A key as seen from the side that is split."""

    key: KeyRows
    side: str
    split: SideRows
    other: SideRows
    pairs: float

    @property
    def load(self) -> float:
        return self.load_on_each(1)

    def load_on_each(self, width: int) -> float:
        """Rows of the other side that cannot match stay where they are, and are no part of this."""
        copied = self.other.rows if self.key.can_match else 0.0
        return (self.split.rows + self.pairs) / width + copied


def plan_splits(
    sketch: Sketch, sides: Sequence[str], partitions: int, max_replication: float, pairs: bool, given: bool
) -> Splits:
    """Splits of the keys of `sketch` on those `sides`; of several, on the one that has more rows of the key.

    `pairs` is false for joins that give no pairs (semi, anti). `given` keys are split however light they are.
    """
    keys = sorted(
        (_seen_from(key, sides, pairs) for key in sketch.keys), key=lambda k: (-k.load, k.key.key_hash)
    )
    total = sketch.left_rows + sketch.right_rows + (sketch.pairs if pairs else 0)
    fair = total / partitions
    rows = {"left": sketch.left_rows, "right": sketch.right_rows}
    room = {side: max_replication * rows[_OTHER[side]] for side in sides}
    loads = [max(0.0, total - sum(key.load for key in keys)) / partitions] * partitions
    splits, why_not, gain = [], [], 0.0
    for key in keys:
        if not given and 2 * key.load < fair:
            slots: tuple[int, ...] = ()
        else:
            width, limit = _width(key, fair, partitions, room[key.side], given)
            slots = _slots(key.key.partitions, loads, width)
            if len(slots) < 2:
                why_not.append(f"{key.key.name}: {limit}")
        if len(slots) < 2:
            loads[key.key.partitions[0]] += key.load
            continue
        for slot in slots:
            loads[key.key.partitions[slot - 1]] += key.load_on_each(len(slots))
        copies = (len(slots) - 1) * key.other.at_most if key.key.can_match else 0.0
        room[key.side] -= copies
        gain += key.load - key.load_on_each(len(slots))
        splits.append(
            Split(key.key.key_hash, key.key.name, key.side, slots, key.load / total if total else 0.0, copies)
        )
    return Splits(tuple(splits), gain, tuple(why_not))


_OTHER = {"left": "right", "right": "left"}


def _seen_from(key: KeyRows, sides: Sequence[str], pairs: bool) -> _Key:
    made = key.left.rows * key.right.rows if pairs and key.can_match else 0.0
    by_side = {
        "left": _Key(key, "left", key.left, key.right, made),
        "right": _Key(key, "right", key.right, key.left, made),
    }
    return max((by_side[side] for side in sides), key=lambda seen: seen.split.rows)


def _width(key: _Key, fair: float, partitions: int, room: float, given: bool) -> tuple[int, str]:
    """The width of a key, and in words what bounds it."""
    bounds = [(partitions, f"there are {partitions} partitions")]
    if key.split.kinds is not None:
        bounds.append((key.split.kinds, f"its rows on the {key.side} are of {key.split.kinds} kinds only"))
    if key.key.can_match and key.other.at_most > 0:
        bounds.append((1 + math.floor(room / key.other.at_most), "its copies would pass max_replication"))
    if not given:
        wanted = math.ceil(FINENESS * key.load / fair) if fair else 1
        bounds.append((wanted, "it is light"))
        if key.key.can_match and key.other.rows > 0:
            pays = math.floor((key.split.rows + key.pairs) / key.other.rows)
            bounds.append(
                (pays, f"most of its rows are on the {_OTHER[key.side]}, which this join must copy")
            )
    return min(bounds, key=lambda bound: bound[0])


def _slots(partitions: Sequence[int], loads: Sequence[float], width: int) -> tuple[int, ...]:
    """Slots for the `width` least loaded partitions that some slot leads to, in the order of slots."""
    slot_of: dict[int, int] = {}
    for slot, partition in enumerate(partitions, 1):
        slot_of.setdefault(partition, slot)
    chosen = heapq.nsmallest(width, slot_of, key=lambda partition: (loads[partition], partition))
    return tuple(sorted(slot_of[partition] for partition in chosen))
