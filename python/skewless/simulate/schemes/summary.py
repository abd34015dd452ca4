"""The most frequent keys of a stream in bounded space: SpaceSaving, with a decay between epochs for FISH.

Apart from the schemes that ask it (D-Choices, W-Choices, FISH) because its guarantee can be tested by itself: without
decay, a count is never below the truth, and never above it by more than tuples / capacity.

>>> summary = SpaceSaving(capacity=2)
>>> summary.offer([7, 7, 8, 9])          # 9 takes the place of 8 and inherits its count
>>> summary.counts()
{7: 2.0, 9: 2.0}

The counters are a heap whose entries may lag behind: a tuple of a tracked key only adds to its counter, and the heap is
put right when its top is wanted, so that hot keys cost nothing. Where the counter of a key is, is kept in a plain array
by key number, not in a hash table of `capacity` entries as a source would have it: this is a simulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.simulate.compiled import Int32s, compiled, inlined
from skewless.simulate.schemes.scheme import sizes_to

# A record for each slot of each source. `stamp` says when the count last grew: of equal counts, the one that grew first
# is replaced first. `width` is FISH's M_k.
SLOT = np.dtype([("count", np.float64), ("stamp", np.int64), ("key", np.int32), ("width", np.int32)])
# A record for each place of the heap: a slot, and its count and stamp when the heap last looked.
PLACE = np.dtype([("count", np.float64), ("stamp", np.int64), ("slot", np.int64)])
# A record for each source: tuples (decayed like the counts), the largest count, tuples (not decayed), slots in use, and
# the clock at which the scheme's next turn (an epoch's end, a new d) is due.
TALLY = np.dtype([("total", np.float64), ("top", np.float64), ("clock", np.int64), ("size", np.int64), ("due", np.int64)])

Records = NDArray[Any]


class Summary:
    """The counters of all sources."""

    def __init__(self, sources: int, capacity: int) -> None:
        self.slot_of = np.full((1024, sources), -1, dtype=np.int32)
        self.slots: Records = np.zeros((sources, capacity), dtype=SLOT)
        self.heap: Records = np.zeros((sources, capacity), dtype=PLACE)
        self.tally: Records = np.zeros(sources, dtype=TALLY)

    def arrays(self, keys: Int32s) -> tuple[Int32s, Records, Records, Records]:
        """What the loops take, with room for these key numbers."""
        self.slot_of = sizes_to(self.slot_of, int(keys.max(initial=-1)) + 1, -1)
        return self.slot_of, self.slots, self.heap, self.tally


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
        decay(self.summary.slots, self.summary.heap, self.summary.tally, 0, alpha)

    def counts(self) -> dict[int, float]:
        """The tracked keys and their counts, largest first; of equal counts, the one that grew first."""
        used = self.summary.slots[0, : self.summary.tally[0]["size"]]
        order = np.lexsort((used["stamp"], -used["count"]))
        return dict(zip(used["key"][order].tolist(), used["count"][order].tolist(), strict=True))


@compiled
def _offer_all(keys: Int32s, slot_of: Int32s, slots: Records, heap: Records, tally: Records) -> None:
    for key in keys:
        touch(slot_of, slots, heap, tally, 0, key)


@inlined
def touch(slot_of: Int32s, slots: Records, heap: Records, tally: Records, s: int, key: int) -> int:
    """Counts one tuple of the key at source s; the slot of the key."""
    slot = int(slot_of[key, s])
    if slot < 0:
        slot = _slot_for(slot_of, slots, heap, tally, s, key)
    tally[s].clock += 1
    tally[s].total += 1.0
    slots[s, slot].stamp = tally[s].clock
    slots[s, slot].count += 1.0
    tally[s].top = max(tally[s].top, slots[s, slot].count)
    return slot


@compiled
def _slot_for(slot_of: Int32s, slots: Records, heap: Records, tally: Records, s: int, key: int) -> int:
    capacity = slots.shape[1]
    if tally[s].size < capacity:
        slot = int(tally[s].size)
        tally[s].size += 1
        if tally[s].size == capacity:
            _rebuild(slots, heap, s)
    else:
        slot = _smallest(slots, heap, s)
        slot_of[slots[s, slot].key, s] = -1
    slots[s, slot].key = key
    slots[s, slot].width = 0
    slot_of[key, s] = slot
    return slot


@compiled
def _smallest(slots: Records, heap: Records, s: int) -> int:
    """The slot with the smallest (count, stamp): the heap's top, once it no longer lags."""
    while True:
        slot = int(heap[s, 0].slot)
        if heap[s, 0].stamp == slots[s, slot].stamp:
            return slot
        _sink(slots, heap, s, 0, slot)


@compiled
def _rebuild(slots: Records, heap: Records, s: int) -> None:
    for slot in range(slots.shape[1]):
        heap[s, slot].slot = slot
        heap[s, slot].count = slots[s, slot].count
        heap[s, slot].stamp = slots[s, slot].stamp
    for at in range(slots.shape[1] // 2 - 1, -1, -1):
        _sink(slots, heap, s, at, heap[s, at].slot)


@compiled
def _sink(slots: Records, heap: Records, s: int, at: int, slot: int) -> None:
    """Puts a slot, as it is now, into the heap at or below `at`: down along the smaller children, then up to its place."""
    capacity, top = slots.shape[1], at
    count, stamp = slots[s, slot].count, slots[s, slot].stamp
    while 2 * at + 2 < capacity:
        child = 2 * at + 1
        child += before(heap[s, child + 1].count, heap[s, child + 1].stamp, heap[s, child].count, heap[s, child].stamp)
        _copy(heap, s, child, at)
        at = child
    if 2 * at + 1 < capacity:
        _copy(heap, s, 2 * at + 1, at)
        at = 2 * at + 1
    while at > top and before(count, stamp, heap[s, (at - 1) // 2].count, heap[s, (at - 1) // 2].stamp):
        _copy(heap, s, (at - 1) // 2, at)
        at = (at - 1) // 2
    heap[s, at].count, heap[s, at].stamp, heap[s, at].slot = count, stamp, slot


@compiled
def _copy(heap: Records, s: int, source: int, target: int) -> None:
    heap[s, target].count = heap[s, source].count
    heap[s, target].stamp = heap[s, source].stamp
    heap[s, target].slot = heap[s, source].slot


@compiled
def before(count: float, stamp: int, other_count: float, other_stamp: int) -> bool:
    """Whether a counter is replaced before another. No branch: which way it goes, no processor can guess."""
    return (count < other_count) | ((count == other_count) & (stamp < other_stamp))


@compiled
def decay(slots: Records, heap: Records, tally: Records, s: int, alpha: float) -> None:
    """Multiplies all counts of source s by alpha; the order can change only where rounding makes counts equal."""
    for slot in range(tally[s].size):
        slots[s, slot].count *= alpha
    tally[s].total *= alpha
    tally[s].top *= alpha
    if tally[s].size == slots.shape[1]:
        ordered = True
        for at in range(slots.shape[1]):
            heap[s, at].count *= alpha
            up = (at - 1) // 2
            if at > 0 and before(heap[s, at].count, heap[s, at].stamp, heap[s, up].count, heap[s, up].stamp):
                ordered = False
        if not ordered:
            _rebuild(slots, heap, s)
