"""Instances that join two streams, tuple by tuple, each with a queue: the clock of the join simulator.

Separate from the routes, which schemes decide, and from the course, which runs minute after minute. The model
is the join-biclique of Aj-Stream (sections 1 and 2.3): half the instances store stream R, the other half
stream S. A tuple is stored at one instance of its own half, and looks for partners at every instance of the
other half that may hold its key.

- To store takes `store` seconds, to look `probe` seconds, and every pair that it finds `match` seconds more,
  divided by the instance's speed. To take in a row that moves takes `move` seconds. Every instance works in
  the order of arrival.
- The source waits while an instance that the next tuple goes to has more than `most_seconds` of work: Storm's
  back pressure, which is how one hot instance slows all.
- A tuple's latency ends with the last of its instances. What it waited at the source is not part of it.
- A tuple can be found by those that arrive at the source in its own minute and in `panes` - 1 after it,
  however late they leave it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled
from skewless.simulate.joins.routes import Routes

SIDES = 2


@dataclass(frozen=True)
class Work:
    """Seconds of an instance."""

    store: float
    probe: float
    match: float = 0.0
    move: float = 0.0


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Tuples in the order of arrival. `deals` are random numbers: which of its instances stores the tuple."""

    keys: Int32s
    sides: Int32s
    deals: Int64s
    seconds: Floats


@dataclass(frozen=True, eq=False)
class Minute:
    """What the instances of both halves did, [half, instance], with the arrivals from number `first` on, and
    of each of these when it left the source and when it was done."""

    first: int
    stores: Int64s
    probes: Int64s
    busy_seconds: Floats
    waited_seconds: Floats
    pairs: int
    emitted: Floats
    done: Floats


class Joiners:
    """Both halves, with what they store and what they still have to do."""

    def __init__(
        self, arrivals: Arrivals, keys: int, instances: int, work: Work, panes: int = 5, most: float = 1.0
    ) -> None:
        self.work, self.most_seconds = work, most
        self.speeds = np.ones((SIDES, instances))
        self.now, self.taken = 0.0, 0
        self.stored = np.zeros((SIDES, keys, instances), dtype=np.int32)
        self._arrivals, self._free = arrivals, np.zeros((SIDES, instances))
        self._panes = np.zeros((panes, *self.stored.shape), dtype=np.int32)
        self._minute = np.zeros(1, dtype=np.int64)  # of the newest tuple that is stored

    def run(self, until: float, routes: tuple[Routes, Routes]) -> Minute:
        """All tuples that leave the source before then."""
        offsets = np.stack([routes[0].offsets, routes[1].offsets + len(routes[0].targets)])
        targets = np.concatenate([routes[0].targets, routes[1].targets])
        work = self.work
        costs = np.array([work.store, work.probe, work.match, self.most_seconds])
        stores, probes = np.zeros((2, *self._free.shape), dtype=np.int64)
        busy, waited = np.zeros((2, *self._free.shape))
        come, first = self._arrivals, self.taken
        emitted, done = np.zeros((2, int(np.searchsorted(come.seconds, until)) - first))
        self.taken, self.now, pairs = _join(
            come.keys, come.sides, come.deals, come.seconds, first, until, offsets, targets, costs, self.now,
            self.stored, self._panes, self._minute, self._free, self.speeds, stores, probes, busy, waited,
            emitted, done,
        )  # fmt: skip
        tuples = self.taken - first
        return Minute(first, stores, probes, busy, waited, int(pairs), emitted[:tuples], done[:tuples])

    @property
    def minute(self) -> int:
        """In which the newest tuple that was taken arrived."""
        return int(self._minute[0])

    def move(self, half: int, before: Routes, after: Routes) -> int:
        """State follows its key: what lies at an instance that a key no longer has goes to one that it has
        now, and keeps that busy. Returns the rows."""
        moved = 0
        for key in _changed(before, after):
            new = after.of(key)
            gone = [target for target in before.of(key).tolist() if target not in new]
            for turn, source in enumerate(gone):
                target = int(new[turn % len(new)])
                rows = int(self.stored[half, key, source])
                for counts in (self.stored, *self._panes):
                    counts[half, key, target] += counts[half, key, source]
                    counts[half, key, source] = 0
                start = max(self.now, self._free[half, target])
                self._free[half, target] = start + rows * self.work.move / self.speeds[half, target]
                moved += rows
        return moved


def _changed(before: Routes, after: Routes) -> list[int]:
    """The keys that have other instances than before."""
    alike = before.widths == after.widths
    found = ~alike
    for width in np.unique(before.widths[alike]).tolist():
        keys = np.flatnonzero(alike & (before.widths == width))
        cells = np.arange(width)
        old, new = (one.targets[one.offsets[keys][:, None] + cells] for one in (before, after))
        found[keys] = (old != new).any(axis=1)
    return [int(key) for key in np.flatnonzero(found)]


@compiled
def _join(
    keys: Int32s,
    sides: Int32s,
    deals: Int64s,
    seconds: Floats,
    first: int,
    until: float,
    offsets: Int64s,
    targets: Int32s,
    costs: Floats,
    now: float,
    stored: Int32s,
    panes: Int32s,
    minute: Int64s,
    free: Floats,
    speeds: Floats,
    stores: Int64s,
    probes: Int64s,
    busy: Floats,
    waited: Floats,
    emitted: Floats,
    done: Floats,
) -> tuple[int, float, int]:
    """Takes each tuple to its instances, until the next one would leave too late. All arrays from `stored` on
    but the speeds change."""
    store, probe, match, most = costs
    pairs, j = 0, first
    while j < len(keys):
        key, own, other = keys[j], sides[j], 1 - sides[j]
        begin, width = offsets[own, key], offsets[own, key + 1] - offsets[own, key]
        home = targets[begin + deals[j] % width]
        leaves = max(now, seconds[j], free[own, home] - most)
        for at in range(offsets[other, key], offsets[other, key + 1]):
            leaves = max(leaves, free[other, targets[at]] - most)
        if leaves >= until:
            break
        now = leaves
        while minute[0] < int(seconds[j] // 60):
            minute[0] += 1
            oldest = panes[minute[0] % len(panes)]
            stored -= oldest
            oldest[:] = 0
        taken = store / speeds[own, home]
        end = max(now, free[own, home]) + taken
        free[own, home] = end
        stored[own, key, home] += 1
        panes[minute[0] % len(panes), own, key, home] += 1
        stores[own, home] += 1
        busy[own, home] += taken
        waited[own, home] += end - now
        last = end
        for at in range(offsets[other, key], offsets[other, key + 1]):
            target = targets[at]
            found = stored[other, key, target]
            taken = (probe + match * found) / speeds[other, target]
            end = max(now, free[other, target]) + taken
            free[other, target] = end
            probes[other, target] += 1
            busy[other, target] += taken
            waited[other, target] += end - now
            pairs += found
            last = max(last, end)
        emitted[j - first], done[j - first] = now, last
        j += 1
    return j, now, pairs
