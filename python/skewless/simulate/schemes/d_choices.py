"""D-Choices and W-Choices: the few most frequent keys get d workers, or all; the rest keep two.

Nasir et al., "When Two Choices Are Not Enough" (ICDE 2016); the FISH paper's section 2.2 uses both as rivals.
The head are the keys whose share exceeds theta, as each source's SpaceSaving summary sees it.

D-Choices takes the smallest d >= p_1 n for which no set of workers is overloaded by the h hottest keys, for
each h. Such a set has about b = n - n (1 - 1/n)^(h d) workers, each of which may take 1/n + epsilon of the
stream:
    p_1 + ... + p_h  +  (b/n)^d x (share of the rest of the head)  +  (b/n)^2 x (share of the tail)   <=   b
    (1/n + epsilon).
That is the paper's condition as we know it (section IV; arXiv 1510.05714): epsilon bounds the imbalance,
which is of one worker, hence the factor b before it. The text could not be had here, but the authors'
programs could (SLBSimulator and SLBStorm by the first author, GitHub). They test h = 1 and the whole head
only, start at round(p_1 n), and allow the whole set epsilon, b/n + epsilon, so that d is the same or a few
larger: `published=on` does it their way. docs/evidence/fish.md compares the two.

They work d out at every tuple of the head. A source works it out anew after every tenth more of its tuples
here, and at least after `refresh` of them: of the very first tuple the one key is the whole stream and gets
all workers, so a d that is kept from then on sends every early key everywhere.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

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
        epsilon: float = 1e-4,
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
        theta = 1 / (5 * len(self.alive)) if self.theta is None else self.theta
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


def choices_for(head: ArrayLike, workers: int, epsilon: float = 1e-4, published: bool = False) -> int:
    """How many workers each key of the head gets, given the keys' shares.

    >>> choices_for([0.05], workers=20), choices_for([0.2], workers=20), choices_for([0.9], workers=20)
    (2, 6, 20)
    """
    shares = np.sort(np.asarray(head, dtype=np.float64))[::-1].copy()
    if len(shares) and not (math.isfinite(shares.sum()) and shares.min() >= 0 and shares.sum() <= 1 + 1e-9):
        number("sum of shares", float(shares.sum()), 0, 1)
    return int(_solve(shares, workers, epsilon, published))


@compiled
def _solve(shares: Floats, workers: int, epsilon: float, published: bool) -> int:
    if len(shares) == 0:
        return 2
    head, least = shares.sum(), shares[0] * workers
    for d in range(max(2, int(np.rint(least) if published else np.ceil(least))), workers):
        missed, prefix, fits = (1.0 - 1.0 / workers) ** d, 0.0, True
        left = 1.0
        for h in range(len(shares)):
            prefix += shares[h]
            left *= missed
            if published and 0 < h < len(shares) - 1:
                continue
            reach = 1.0 - left  # b / n
            load = prefix + reach**d * (head - prefix) + reach * reach * (1.0 - head)
            if load > reach + epsilon * (1.0 if published else reach * workers):
                fits = False
                break
        if fits:
            return d
    return workers


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
