"""FISH: hot keys of the recent past get more workers, and each tuple goes where the wait is shortest.

FISH paper, section 4. Four parts, each of which can be taken away to see what it does:
- *epochs* (Algorithm 1): a summary of counts per source, multiplied by alpha after each epoch (alpha = 1:
  never);
- *classes*, CHK (Algorithm 2): a key above theta gets n / 2^i workers, i = floor(log2(hottest / key)), never
  fewer than d_min or than it had; `classes="all"` gives every hot key all workers, `"d-choices"` that
  scheme's d;
- *inference* (Algorithm 3): the backlog of a worker is what was sent less what it can have done since;
- *ring* (section 5): candidates come from a consistent-hash ring, and of equal waits the first clockwise
  wins, also for a key that may go to all workers; else candidates come from hashing modulo n.

Where the paper leaves a choice: a key's M_k is kept while the key is tracked. d_min is 2, or ceil(n x mean
share of the hot keys) where that is more, taken once an epoch. Line 18 and formula (1) together would count a
tuple twice; we count it once. A source sees only its own tuples, so it grants a worker only its own part, T /
sources, of the time. Ties in ring order keep a key that is hot for a short time with few workers, where ties
in order of number would send its next tuple to the next worker: over eleven streams (Zipf, drifting Zipf,
five real ones) state is 0.60 to 0.99 times as much at 128 workers, 0.96 to 1.00 at 32 and 1.00 to 1.03 at 8,
and batches take 0.99 to 1.02 times as long.
"""

from __future__ import annotations

import numpy as np

from skewless.errors import SettingError
from skewless.policies.splits.fish import backlog_seconds, chk_width, workers_needed
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled, inlined
from skewless.simulate.schemes.d_choices import width_of_head
from skewless.simulate.schemes.ring import VIRTUAL_NODES, Int16s, Ring, place_of
from skewless.simulate.schemes.scheme import Scheme, candidate, least_loaded, number
from skewless.simulate.schemes.space_saving import Records, Summary, count, decay, slot_for

_workers_needed, _chk_width = inlined(workers_needed), inlined(chk_width)
_backlog = inlined(backlog_seconds)
CLASSES = ("chk", "all", "d-choices")


class Fish(Scheme):
    """FISH with the paper's settings.

    `alpha` 0.2 (section 6.3), `epoch` 1,000 tuples of a source (4.1.1), `theta` 1/(4n) (6.3), `top` 1,000
    tracked keys (2.3), `interval` 10 seconds between two estimates of the backlog (4.2.1).
    """

    splits = True

    def __init__(
        self,
        cluster: Cluster,
        alpha: float = 0.2,
        epoch: int = 1000,
        theta: float | None = None,
        top: int = 1000,
        interval: float = 10.0,
        classes: str = "chk",
        inference: bool = True,
        ring: bool = True,
        nodes: int = VIRTUAL_NODES,
    ) -> None:
        super().__init__(cluster)
        if classes not in CLASSES:
            raise SettingError(f"classes {classes!r} are unknown. Choose one of {', '.join(CLASSES)}.")
        self.alpha = number("alpha", alpha, 0, 1)
        self.epoch = int(number("epoch", epoch, 1, 1e18))
        self.theta = None if theta is None else number("theta", theta, 0, 1)
        self.interval = number("interval", interval, 1e-9, 1e18)
        self.classes, self.inference, self.ring = classes, inference, ring
        self.nodes = int(number("nodes", nodes, 1, 1 << 16))
        self.summary = Summary(cluster.sources, int(number("top", top, 1, 1 << 24)))
        self.summary.tally["due"] = self.epoch
        self.wait = np.zeros((cluster.sources, cluster.workers))
        self.floor = np.zeros(cluster.sources)
        self.place = np.zeros(cluster.sources, dtype=np.int64)
        self.least = np.full(cluster.sources, 2, dtype=np.int64)  # d_min, or D-Choices' d
        self.ticks = np.zeros(2, dtype=np.int64)  # tuples seen, estimates of the backlog made
        self.change(self.alive, cluster.service_seconds)

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        super().change(alive, service_seconds)
        self.service_seconds = service_seconds if self.inference else np.ones_like(service_seconds)
        self.circle = Ring(alive, self.nodes if self.ring else 1, self.cluster.seed)
        self.floor[:] = -1
        if not self.inference:  # the loads are all it goes by; a newcomer starts level
            self.wait[:, alive] = np.maximum(
                self.wait[:, alive], np.median(self.wait[:, alive], axis=1, keepdims=True)
            )

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        theta = 1 / (4 * len(self.alive)) if self.theta is None else self.theta
        workers = (
            self.wait,
            self.floor,
            self.place,
            self.least,
            self.ticks,
            self.alive,
            self.service_seconds,
        )
        circle = (self.circle.nodes, self.circle.orders)
        pace = (self.interval if self.inference else np.inf, self.cluster.arrival_seconds)
        settings = (self.alpha, self.epoch, theta, CLASSES.index(self.classes), self.ring, self.cluster.seed)
        return _choose(keys, hashes, sources, *self.summary.arrays(keys), *workers, *circle, *pace, *settings)


@compiled
def _choose(
    keys: Int32s,
    hashes: Int32s,
    sources: Int32s,
    slot_of: Int32s,
    slots: Records,
    queue: Records,
    tally: Records,
    wait: Floats,
    floor: Floats,
    place: Int64s,
    least: Int64s,
    ticks: Int64s,
    alive: Int32s,
    service_seconds: Floats,
    nodes: Int32s,
    orders: Int16s,
    interval: float,
    arrival_seconds: float,
    alpha: float,
    epoch: int,
    theta: float,
    classes: int,
    ring: bool,
    seed: int,
) -> Int32s:
    out = np.empty(len(keys), dtype=np.int32)
    n, due = len(alive), _first_after((ticks[1] + 1) * interval, arrival_seconds)
    for i in range(len(keys)):
        s = sources[i]
        if ticks[0] + i >= due:
            ticks[1] += 1
            _drain(wait, floor, interval / len(wait))
            due = _first_after((ticks[1] + 1) * interval, arrival_seconds)
        if tally[s].clock >= tally[s].due:
            tally[s].due += epoch
            _end_epoch(slots, queue, tally, s, least, alpha, theta, classes, n)
        slot = slot_of[keys[i], s]
        if slot < 0:
            slot = slot_for(slot_of, slots, queue, tally, s, keys[i])
        count(slots, tally, s, slot)
        d = min(2, n)
        if slots[s, slot].count > theta * tally[s].total:
            d = _width(slots, tally, s, slot, least[s], classes, n)
        if d >= n:
            worker = least_loaded(wait, s, floor, place, alive)
        if ring:
            worker = _shortest_of(wait, s, floor[s], orders, nodes[place_of(hashes[i])], min(d, n))
        elif d < n:
            worker = alive[candidate(hashes[i], 0, n, seed)]
            for j in range(1, d):
                other = alive[candidate(hashes[i], j, n, seed)]
                if wait[s, other] < wait[s, worker]:
                    worker = other
        wait[s, worker] += service_seconds[worker]
        out[i] = worker
    ticks[0] += len(keys)
    return out


@compiled
def _first_after(seconds: float, arrival_seconds: float) -> int:
    """The number of the first tuple that arrives later than this."""
    if seconds > 1e15 * arrival_seconds:
        return 1 << 60
    first = int(seconds / arrival_seconds) - 1
    while not first * arrival_seconds > seconds:
        first += 1
    return first


@compiled
def _drain(wait: Floats, floor: Floats, seconds: float) -> None:
    """Formula (1), in seconds: the workers have worked on while the sources sent."""
    for s in range(len(wait)):
        floor[s] = -1.0
        for worker in range(wait.shape[1]):
            wait[s, worker] = _backlog(wait[s, worker], 0.0, seconds)


@compiled
def _end_epoch(
    slots: Records,
    queue: Records,
    tally: Records,
    s: int,
    least: Int64s,
    alpha: float,
    theta: float,
    classes: int,
    n: int,
) -> None:
    if classes == 2:
        least[s] = width_of_head(slots, tally, s, theta, n, 1e-4, False)
    elif classes == 0:
        least[s] = _needed(slots, tally, s, theta, n)
    if alpha < 1.0:
        decay(slots, queue, tally, s, alpha)


@compiled
def _needed(slots: Records, tally: Records, s: int, theta: float, n: int) -> int:
    """d_min: the workers that an average hot key needs."""
    head, keys = 0.0, 0
    for slot in range(tally[s].size):
        if slots[s, slot].count > theta * tally[s].total:
            head += slots[s, slot].count
            keys += 1
    return _workers_needed(head / tally[s].total, keys, n)


@inlined
def _width(slots: Records, tally: Records, s: int, slot: int, least: int, classes: int, n: int) -> int:
    """Algorithm 2: how many workers a hot key gets."""
    if classes == 1:
        return n
    if classes == 2:
        return min(n, least)
    known = max(least, int(slots[s, slot].width))
    width = _chk_width(slots[s, slot].count, tally[s].top, known, n)
    slots[s, slot].width = width
    return min(n, width)


@inlined
def _shortest_of(wait: Floats, s: int, floor: float, orders: Int16s, node: int, d: int) -> int:
    """The first of d workers with the shortest wait; no wait is shorter than `floor`."""
    worker, j = int(orders[node, 0]), 1
    while j < d and wait[s, worker] != floor:  # `break` would make numba count references at each tuple
        other = int(orders[node, j])
        worker = other if wait[s, other] < wait[s, worker] else worker
        j += 1
    return worker
