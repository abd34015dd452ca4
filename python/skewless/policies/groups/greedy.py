"""Greedy placement: the lowest load distance at which first-fit rules still find a placement within the
budget, and then exchanges with the worst node. Ours; it serves where no solver is installed, and gives the
solver its start.

Separate from Flux because it asks what a byte moved is worth: groups with much load and little state go
first. A trial distance is found by halving, since a placement for one distance serves for any larger one.
"""

from __future__ import annotations

import time

import numpy as np

from skewless.model.placement import Bools, Ints, Placement, PlacementLimits, PlacementPlan
from skewless.model.snapshot import Floats
from skewless.policies.groups.settle import better, seat, settle

HALVINGS = 14
SHARE_OF_TIME = 0.25  # after it the greedy stops with what it has: with thousands of groups it would go on
EXCHANGES_PER_GROUP = 2
WORTH_A_MOVE = 1e-3  # of the mean load: an exchange that brings a node no closer than this is not made


def greedy(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
    """Levels with few bytes.

    >>> from skewless.model.placement import Groups, Nodes
    >>> groups = Groups.of([0, 1, 2], [30, 20, 10], state_bytes=[9, 1, 1], nodes=[0, 0, 1])
    >>> plan = greedy(Placement(Nodes.of(["a", "b"]), groups), PlacementLimits(max_bytes=5))
    >>> plan.moves, plan.distance_before, plan.distance_after
    ({1: 'b'}, 20.0, 0.0)
    """
    started = time.perf_counter()
    return settle(placement, limits, level(placement, limits), started)


def level(placement: Placement, limits: PlacementLimits, pins: Ints | None = None) -> Ints:
    """The targets of the greedy. A group k with pins[k] >= 0 goes there, and stays there."""
    start = seat(placement, limits)
    if len(placement.nodes.takers) < 2 or placement.mean == 0:
        return start
    free = np.ones(len(start), dtype=np.bool_)
    if pins is not None:
        start, free = np.where(pins >= 0, pins, start), pins < 0
        if placement.bytes_moved(start) > limits.max_bytes:
            return start
    until = time.perf_counter() + limits.seconds * SHARE_OF_TIME
    best, low, high = start, 0.0, placement.distance(start)
    for _ in range(HALVINGS):
        if time.perf_counter() > until:
            break
        trial = (low + high) / 2
        found = _Fit(placement, limits, start, free).at(trial)
        if found is None:
            low = trial
        else:
            best, high = better(placement, best, found), min(trial, placement.distance(found))
    best = _Exchange(placement, limits, best, free).run(until)
    return better(placement, best, _Exchange(placement, limits, start, free).run(until))


class _Fit:
    """One trial: every node to within `distance` of the mean, heavy nodes giving first."""

    def __init__(self, placement: Placement, limits: PlacementLimits, start: Ints, free: Bools) -> None:
        self.placement, self.targets, self.free = placement, start.copy(), free
        self.left = limits.max_bytes - placement.bytes_moved(start)
        self.room = placement.nodes.capacities
        self.loads = placement.node_loads(start)
        with np.errstate(divide="ignore", invalid="ignore"):
            worth = placement.loads / placement.groups.state_bytes
        self.worth = np.where(placement.loads > 0, worth, -1.0)

    def at(self, distance: float) -> Ints | None:
        mean, takers = self.placement.mean, self.placement.nodes.takers
        self.low, self.high = mean - distance, mean + distance
        given: list[int] = []
        for i in takers[self.loads[takers] > self.high].tolist():
            if not self._give(i, given):
                return None
        for k in sorted(given, key=lambda k: -self.placement.loads[k]):
            if not self._seat(k):
                return None
        for i in takers[self.loads[takers] < self.low].tolist():
            if not self._pull(i):
                return None
        return self.targets

    def _cost(self, k: int, node: int) -> float:
        """Bytes more if k goes to this node: a group that has left home already is paid for."""
        home = int(self.placement.sources[k])
        if home < 0:
            return 0.0
        return float(self.placement.groups.state_bytes[k]) * (
            int(node != home) - int(self.targets[k] != home)
        )

    def _give(self, i: int, given: list[int]) -> bool:
        mine = np.flatnonzero((self.targets == i) & self.free)
        chosen: list[int] = []
        for k in mine[np.argsort(-self.worth[mine], kind="stable")].tolist():
            after = self.loads[i] - self.placement.loads[k] / self.room[i]
            if self.loads[i] <= self.high:
                break
            if after >= self.low and self.placement.loads[k] > 0:
                self.loads[i] = after
                chosen.append(k)
        for k in list(chosen):  # what the later ones made needless comes back
            before = self.loads[i] + self.placement.loads[k] / self.room[i]
            if before <= self.high:
                self.loads[i] = before
                chosen.remove(k)
        given += chosen
        return bool(self.loads[i] <= self.high)

    def _seat(self, k: int) -> bool:
        takers = self.placement.nodes.takers
        takers = takers[takers != self.targets[k]]
        filled = self.loads[takers] + self.placement.loads[k] / self.room[takers]
        i = int(takers[np.lexsort((takers, filled))[0]])
        return filled.min() <= self.high and self._move(k, i)

    def _move(self, k: int, i: int) -> bool:
        self.left -= self._cost(k, i)
        self.loads[i] += self.placement.loads[k] / self.room[i]
        self.targets[k] = i
        return self.left >= 0

    def _pull(self, i: int) -> bool:
        """Takes groups from nodes that can spare them."""
        where, loads = self.targets, self.placement.loads
        takes = np.isin(where, self.placement.nodes.takers) & (where != i) & self.free & (loads > 0)
        for k in np.flatnonzero(takes)[np.argsort(-self.worth[takes], kind="stable")].tolist():
            giver, load = int(where[k]), loads[k]
            spare = self.loads[giver] - load / self.room[giver]
            if self.loads[i] >= self.low:
                break
            if spare >= self.low and self.loads[i] + load / self.room[i] <= self.high:
                self.loads[giver] = spare
                if not self._move(k, i):
                    return False
        return bool(self.loads[i] >= self.low)


class _Exchange:
    """The node farthest from the mean gives a group, takes one, or exchanges one for another, whichever
    brings the pair of nodes closest to the mean. When nothing does, the next node follows."""

    def __init__(self, placement: Placement, limits: PlacementLimits, start: Ints, free: Bools) -> None:
        self.placement, self.targets, self.free = placement, start.copy(), free
        self.max_bytes = limits.max_bytes
        home = placement.sources
        self.sizes = np.where(home >= 0, placement.groups.state_bytes, 0.0)

    def run(self, until: float) -> Ints:
        placement, open_nodes = self.placement, self.placement.nodes.takers
        for _ in range(EXCHANGES_PER_GROUP * len(self.targets)):
            off = placement.node_loads(self.targets) - placement.mean
            if not len(open_nodes) or time.perf_counter() > until:
                break
            worst = int(open_nodes[int(np.abs(off[open_nodes]).argmax())])
            if not self._step(worst, off):
                open_nodes = open_nodes[open_nodes != worst]
        return self.targets

    def _step(self, worst: int, off: Floats) -> bool:
        """The best exchange, if any is worth it; a row and a column of zeros stand for nothing given, and
        nothing taken."""
        targets, loads, room = self.targets, self.placement.loads, self.placement.nodes.capacities
        takers = self.placement.nodes.takers
        mine = np.flatnonzero((targets == worst) & self.free)
        theirs = np.flatnonzero(np.isin(targets, takers) & (targets != worst) & self.free)
        others = takers[takers != worst]
        given = np.concatenate([loads[mine], [0.0]])
        taken = np.concatenate([loads[theirs], np.zeros(len(others))])
        partner = np.concatenate([targets[theirs], others])
        change = given[:, None] - taken[None, :]
        after = np.maximum(
            np.abs(off[worst] - change / room[worst]), np.abs(off[partner] + change / room[partner])
        )
        after[self._bytes(mine, theirs, others, worst, partner) > self.max_bytes] = np.inf
        best = int(after.argmin())
        if not after.flat[best] < abs(off[worst]) - WORTH_A_MOVE * self.placement.mean:
            return False
        give, take = divmod(best, len(partner))
        if give < len(mine):
            targets[mine[give]] = partner[take]
        if take < len(theirs):
            targets[theirs[take]] = worst
        return True

    def _bytes(self, mine: Ints, theirs: Ints, others: Ints, worst: int, partner: Ints) -> Floats:
        """Bytes of the whole plan after each exchange."""
        home, sizes, targets = self.placement.sources, self.sizes, self.targets
        now = float(sizes[targets != home].sum())
        given = np.zeros((len(mine) + 1, len(partner)))
        given[:-1] = sizes[mine][:, None] * (
            (partner[None, :] != home[mine][:, None]).astype(np.float64) - (home[mine] != worst)[:, None]
        )
        back = sizes[theirs] * (
            (home[theirs] != worst).astype(np.float64) - (targets[theirs] != home[theirs])
        )
        return np.asarray(now + given + np.concatenate([back, np.zeros(len(others))])[None, :])
