"""The most frequent keys of a stream in bounded space: SpaceSaving, with a decay between epochs for FISH.

Separate from the schemes that ask it (D-Choices, W-Choices, FISH) because its guarantee can be tested by
itself: without decay, a count is never below the truth, and never above it by more than tuples / capacity.

>>> summary = SpaceSaving(capacity=2)
>>> summary.offer([7, 7, 8, 9])          # 9 takes the place of 8 and inherits its count
>>> summary.counts()
{7: 2.0, 9: 2.0}

A tuple of a tracked key only adds to its counter. The smallest counters wait in a sorted queue, and a counter
that grew since the queue was filled is passed over; when the queue is empty it is filled again with all that
is within one of the smallest. One scan thus serves many replacements. Where the counter of a key is, is kept
in a plain array by key number, not in a hash table of `capacity` entries as a source would have it: this is a
simulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.simulate.compiled import Int32s, compiled, inlined, leaf
from skewless.simulate.schemes.scheme import sizes_to

# A record for each slot of each source. `stamp` says when the count last grew: of equal counts, the one that
# grew first is replaced first. `width` is FISH's M_k.
SLOT = np.dtype([("count", np.float64), ("stamp", np.int64), ("key", np.int32), ("width", np.int32)])
# A record for each place of the queue: a slot, and its count and stamp when the queue was filled.
PLACE = np.dtype([("count", np.float64), ("stamp", np.int64), ("slot", np.int64)])
# A record for each source: tuples (decayed like the counts), the largest count, tuples (not decayed), slots
# in use, and the clock at which the scheme's next turn (an epoch's end, a new d) is due; then the queue: its
# next place, its end, and a limit that is above all counts in it and not above any other.
TALLY = np.dtype(
    [
        *(
            ("total", np.float64),
            ("top", np.float64),
            ("clock", np.int64),
            ("size", np.int64),
            ("due", np.int64),
        ),
        *(("next", np.int64), ("end", np.int64), ("limit", np.float64)),
    ]
)

Records = NDArray[Any]


class Summary:
    """The counters of all sources."""

    def __init__(self, sources: int, capacity: int) -> None:
        self.slot_of = np.full((1024, sources), -1, dtype=np.int32)
        self.slots: Records = np.zeros((sources, capacity), dtype=SLOT)
        self.queue: Records = np.zeros((sources, capacity), dtype=PLACE)
        self.queue["slot"] = np.arange(capacity)
        self.tally: Records = np.zeros(sources, dtype=TALLY)

    def arrays(self, keys: Int32s) -> tuple[Int32s, Records, Records, Records]:
        """What the loops take, with room for these key numbers."""
        self.slot_of = sizes_to(self.slot_of, int(keys.max(initial=-1)) + 1, -1)
        return self.slot_of, self.slots, self.queue, self.tally


class SpaceSaving:
    """One source's summary, for use by itself."""

    def __init__(self, capacity: int) -> None:
        self.summary = Summary(1, capacity)

    def offer(self, keys: ArrayLike) -> None:
        """Counts the keys, given by number, in order."""
        numbers = np.asarray(keys, dtype=np.int32)
        _offer_all(numbers, *self.summary.arrays(numbers))

    def decay(self, alpha: float) -> None:
        """Ends an epoch: every count is multiplied by alpha."""
        decay(self.summary.slots, self.summary.queue, self.summary.tally, 0, alpha)

    def counts(self) -> dict[int, float]:
        """The tracked keys and their counts, largest first; of equal counts, the one that grew first."""
        used = self.summary.slots[0, : self.summary.tally[0]["size"]]
        order = np.lexsort((used["stamp"], -used["count"]))
        return dict(zip(used["key"][order].tolist(), used["count"][order].tolist(), strict=True))


@compiled
def _offer_all(keys: Int32s, slot_of: Int32s, slots: Records, queue: Records, tally: Records) -> None:
    for i in range(len(keys)):
        slot = slot_of[keys[i], 0]
        if slot < 0:
            slot = slot_for(slot_of, slots, queue, tally, 0, keys[i])
        count(slots, tally, 0, slot)


@leaf
def slot_for(slot_of: Int32s, slots: Records, queue: Records, tally: Records, s: int, key: int) -> int:
    """A slot for a key that source s does not track. The loops call it themselves: from a step between, numba
    would count the references of all arrays at each tuple, which takes ten times as long as the step."""
    if tally[s].size < slots.shape[1]:
        slot = int(tally[s].size)
        tally[s].size += 1
    else:
        slot = _smallest(slots, queue, tally, s)
        slot_of[slots[s, slot].key, s] = -1
    slots[s, slot].key = key
    slots[s, slot].width = 0
    slot_of[key, s] = slot
    return slot


@inlined
def count(slots: Records, tally: Records, s: int, slot: int) -> None:
    """Counts one tuple of the slot's key at source s."""
    tally[s].clock += 1
    tally[s].total += 1.0
    slots[s, slot].stamp = tally[s].clock
    slots[s, slot].count += 1.0
    tally[s].top = max(tally[s].top, slots[s, slot].count)


@inlined
def _smallest(slots: Records, queue: Records, tally: Records, s: int) -> int:
    """The slot with the smallest (count, stamp): the first in the queue that has not grown."""
    while True:
        while tally[s].next < tally[s].end:
            at = tally[s].next
            tally[s].next = at + 1
            slot = int(queue[s, at].slot)
            if queue[s, at].stamp == slots[s, slot].stamp:
                return slot
        _fill(slots, queue, tally, s)


@inlined
def _fill(slots: Records, queue: Records, tally: Records, s: int) -> None:
    """Queues all counters below the smallest plus one. Whatever grows, or comes anew, is then above all that
    wait.

    They are taken in the order of the last queue, in which most of them still are."""
    limit, end = np.inf, 0
    for at in range(slots.shape[1]):
        slot = queue[s, at].slot
        queue[s, at].count, queue[s, at].stamp = slots[s, slot].count, slots[s, slot].stamp
        limit = min(limit, queue[s, at].count + 1.0)
    for at in range(slots.shape[1]):
        if queue[s, at].count < limit:
            count, stamp, slot = queue[s, at].count, queue[s, at].stamp, queue[s, at].slot
            _copy(queue, s, end, at)
            queue[s, end].count, queue[s, end].stamp, queue[s, end].slot = count, stamp, slot
            end += 1
    _sort(queue, s, end)
    tally[s].next, tally[s].end, tally[s].limit = 0, end, limit


@inlined
def _copy(queue: Records, s: int, source: int, target: int) -> None:
    queue[s, target].count, queue[s, target].stamp = queue[s, source].count, queue[s, source].stamp
    queue[s, target].slot = queue[s, source].slot


@inlined
def _sort(queue: Records, s: int, end: int) -> None:
    """Orders the queue by (count, stamp): Shell's sort, which needs no room."""
    gap = end
    while gap > 1:
        gap = max(1, gap * 4 // 9)
        for first in range(gap, end):
            count, stamp, slot, at = queue[s, first].count, queue[s, first].stamp, queue[s, first].slot, first
            while at >= gap and before(count, stamp, queue[s, at - gap].count, queue[s, at - gap].stamp):
                _copy(queue, s, at - gap, at)
                at -= gap
            queue[s, at].count, queue[s, at].stamp, queue[s, at].slot = count, stamp, slot


@inlined
def before(count: float, stamp: int, other_count: float, other_stamp: int) -> bool:
    """Whether a counter is replaced before another."""
    return (count < other_count) | ((count == other_count) & (stamp < other_stamp))


@compiled
def decay(slots: Records, queue: Records, tally: Records, s: int, alpha: float) -> None:
    """Multiplies all counts of source s by alpha; the queue stays, unless rounding has made counts equal that
    were not."""
    for slot in range(tally[s].size):
        slots[s, slot].count *= alpha
    tally[s].total *= alpha
    tally[s].top *= alpha
    tally[s].limit *= alpha
    first, end, kept = tally[s].next, tally[s].end, True
    for at in range(first, end):
        queue[s, at].count *= alpha
        if at > first and before(
            queue[s, at].count, queue[s, at].stamp, queue[s, at - 1].count, queue[s, at - 1].stamp
        ):
            kept = False
    if first < end:
        kept = kept and queue[s, end - 1].count < tally[s].limit <= queue[s, first].count + 1.0
    if not kept:
        tally[s].next = end
