"""D-Choices and W-Choices: the few most frequent keys get d workers, or all; the rest keep two.

Nasir et al., "When Two Choices Are Not Enough" (ICDE 2016); the FISH paper's section 2.2 uses both as rivals.
The head are the keys whose share exceeds theta, as each source's SpaceSaving summary sees it.

The condition for d stands in `policies/splits/d_choices.py`, and is compiled here.

The authors' programs work d out at every tuple of the head. Here a source works it out anew after every tenth
more of its tuples, and at least after `refresh` of them: of the very first tuple the one key is the whole
stream and gets all workers, so a d that is kept from then on sends every early key everywhere.
"""

from __future__ import annotations

import numpy as np

from skewless.policies.splits.d_choices import EPSILON, head_share, smallest_d
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled
from skewless.simulate.schemes.scheme import Scheme, candidate, least_loaded, number
from skewless.simulate.schemes.space_saving import Records, Summary, count, slot_for

LEARNING = 10  # d is worked out again after a tenth more tuples, while that is less than `refresh`


class DChoices(Scheme):
    """Greedy over d workers for the head, over two for the tail, with local loads.

    `theta` is the head's threshold: 1/(5n), the share up to which two choices are proven enough (PKG paper,
    Theorem 5.1); `epsilon` the slack, 1e-4; `top` how many keys a source tracks, 1,000 (FISH paper, section
    2.3); `refresh` after how many of its tuples at most a source works d out again (our choice); `published`
    takes the condition from the authors' programs instead of the paper.
    """

    splits = True
    all_workers = False

    def __init__(
        self,
        cluster: Cluster,
        theta: float | None = None,
        epsilon: float = EPSILON,
        top: int = 1000,
        refresh: int = 1000,
        published: bool = False,
    ) -> None:
        super().__init__(cluster)
        self.theta = None if theta is None else number("theta", theta, 0, 1)
        self.epsilon = number("epsilon", epsilon, 0, 1)
        self.refresh = int(number("refresh", refresh, 1, 1e18))
        self.published = published
        self.summary = Summary(cluster.sources, int(number("top", top, 1, 1 << 24)))
        self.loads = np.zeros((cluster.sources, cluster.workers), dtype=np.int64)
        self.d = np.zeros(cluster.sources, dtype=np.int64)
        self.floor = np.zeros(cluster.sources, dtype=np.int64)
        self.place = np.zeros(cluster.sources, dtype=np.int64)

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        theta = head_share(len(self.alive)) if self.theta is None else self.theta
        settings = (theta, self.epsilon, self.published, self.refresh, self.all_workers, self.cluster.seed)
        summary = self.summary.arrays(keys)
        loads = (self.loads, self.d, self.floor, self.place, self.alive)
        return _choose(keys, hashes, sources, *summary, *loads, *settings)

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        joined = np.setdiff1d(alive, self.alive)
        self.loads[:, joined] = self.loads[:, self.alive].min(axis=1, keepdims=True)
        self.d[:] = 0
        self.floor[:] = -1
        super().change(alive, service_seconds)


_solve = compiled(smallest_d)


@compiled
def head_of(slots: Records, tally: Records, s: int, theta: float) -> Floats:
    """The shares of the keys of source s that exceed theta, largest first."""
    shares, found = np.empty(tally[s].size), 0
    for slot in range(tally[s].size):
        if slots[s, slot].count > theta * tally[s].total:
            share, at = slots[s, slot].count / tally[s].total, found
            while at > 0 and shares[at - 1] < share:  # few keys, mostly in order already
                shares[at] = shares[at - 1]
                at -= 1
            shares[at] = share
            found += 1
    return shares[:found]


@compiled
def width_of_head(
    slots: Records, tally: Records, s: int, theta: float, workers: int, epsilon: float, published: bool
) -> int:
    """D-Choices' d for what source s has seen."""
    return _solve(head_of(slots, tally, s, theta), workers, epsilon, published)


@compiled
def _choose(
    keys: Int32s,
    hashes: Int32s,
    sources: Int32s,
    slot_of: Int32s,
    slots: Records,
    queue: Records,
    tally: Records,
    loads: Int64s,
    widths: Int64s,
    floor: Int64s,
    place: Int64s,
    alive: Int32s,
    theta: float,
    epsilon: float,
    published: bool,
    refresh: int,
    all_workers: bool,
    seed: int,
) -> Int32s:
    out = np.empty(len(keys), dtype=np.int32)
    n = len(alive)
    for i in range(len(keys)):
        s, d, smallest = sources[i], min(2, n), -1
        slot = slot_of[keys[i], s]
        if slot < 0:
            slot = slot_for(slot_of, slots, queue, tally, s, keys[i])
        count(slots, tally, s, slot)
        if slots[s, slot].count > theta * tally[s].total:
            if not all_workers and (widths[s] == 0 or tally[s].clock >= tally[s].due):
                widths[s] = width_of_head(slots, tally, s, theta, n, epsilon, published)
                tally[s].due = tally[s].clock + min(refresh, 1 + tally[s].clock // LEARNING)
            d = n if all_workers else widths[s]
        worker = alive[candidate(hashes[i], 0, n, seed)]
        if d > 2 or d >= n:
            least = least_loaded(loads, s, floor, place, alive)
            smallest = floor[s]
            worker = least if d >= n else worker
        for j in range(1, d):
            if loads[s, worker] == smallest:  # none can be better
                break
            other = alive[candidate(hashes[i], j, n, seed)]
            if loads[s, other] < loads[s, worker]:
                worker = other
        loads[s, worker] += 1
        out[i] = worker
    return out
