"""Least-Load Fit Decreasing (section III-A, Algorithm 1): the heaviest candidate goes to the least loaded
partition that accepts it, if need be in exchange for lighter keys.

Separate from the policies that call it because it is their common third phase; it is also a policy of its
own. Items come in groups of like keys (`counts`), so that the same code serves single keys and the compact
form.

Where the paper leaves a choice: a partition accepts at `<=` its ceiling; loads are the current ones; ties go
to the smaller number; an exchange takes the shortest prefix in order of priority that makes room. Keys
heavier than the ceiling (or than what fixed load leaves of it) are seated beforehand and never tossed about.

Why it ends: a candidate pushes out strictly lighter keys only, and candidates are taken heaviest first. So
each key is placed at most once, and a placed key is never pushed out again.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Floats, Snapshot
from skewless.model.table import Table
from skewless.policies.problem import Bools, Ints, Items, Problem, pose
from skewless.policies.settle import settle
from skewless.policies.simple import better_of


def llfd(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """LLFD alone: nothing is cleaned beforehand, the heaviest keys are taken first.

    >>> table = Table(2)
    >>> plan = llfd(Snapshot.of(table, [0, 2, 4], [3.0, 2.0, 1.0]), table, Limits(max_imbalance=0))
    >>> plan.moves.key_hashes, plan.imbalance_after
    (array([0], dtype=int32), 0.0)
    """
    problem = pose(snapshot, table, limits)
    plan = settle(problem, level(problem, problem.items.sources, problem.items.costs))
    return better_of(plan, problem, reachable(problem))


def level(problem: Problem, starts: Ints, priority: Floats) -> Ints:
    """Phases II and III for single keys: the partition of each item, given where the cleaning phase left
    it."""
    giants = problem.giants
    seats, floor = seat(problem, giants, starts)
    free = replace(problem.items, counts=np.where(giants, 0, problem.items.counts))
    placements = assign(free, seats, priority, floor, ceilings(problem, floor))
    targets = seats.copy()
    for item, target, _ in placements:
        targets[item] = target
    return targets


def seat(problem: Problem, giants: Bools, starts: Ints) -> tuple[Ints, Floats]:
    """The starts with the giants seated, and what then can no longer leave each partition.

    Keeps every giant where it is, unless another partition would carry less under it by more than the
    tolerance: two giants part, but one that has a partition to itself never moves for nothing.
    """
    seats = starts.copy()
    floor = problem.fixed.copy()
    worthwhile = problem.limits.max_imbalance * problem.mean + problem.slack
    heavy = np.flatnonzero(giants)
    for item in heavy[np.argsort(-problem.items.costs[heavy], kind="stable")].tolist():
        here, best = int(problem.items.sources[item]), int(np.argmin(floor))
        seats[item] = best if floor[best] + worthwhile < floor[here] else here
        floor[seats[item]] += problem.items.costs[item]
    return seats, floor


def ceilings(problem: Problem, floor: Floats) -> Floats:
    """How high each partition may be filled: L_max, or what can never leave the partition. Beside a giant
    nothing stays that finds room elsewhere: the batch waits for the giant, and for whatever comes on top."""
    return np.maximum(problem.ceiling, floor) + problem.slack


def reachable(problem: Problem) -> float:
    """The imbalance that is as good as can be asked for: max_imbalance, or the tolerance above the highest
    floor."""
    if problem.mean == 0:
        return 0.0
    _, floor = seat(problem, problem.giants, problem.items.sources)
    highest = max(problem.mean, float(floor.max()))
    return ((1.0 + problem.limits.max_imbalance) * highest + problem.slack) / problem.mean - 1.0


def assign(
    items: Items, starts: Ints, priority: Floats, floor: Floats, ceilings: Floats
) -> list[tuple[int, int, int]]:
    """Which keys go where: (item, target, how many of its keys); keys that are not named stay at their start.

    `floor` is the load that cannot leave each partition; items of count 0 are part of it.
    """
    work = _Work.begin(items, starts, priority, floor, ceilings)
    for partition in np.flatnonzero(work.loads > work.ceilings).tolist():
        work.take(partition, work.loads[partition] - work.ceilings[partition], np.inf)
    while work.candidates:
        work.place_heaviest()
    return work.placements


@dataclass
class _Work:
    """What changes while LLFD runs: loads, keys left at their start, candidates (a heap), placements."""

    items: Items
    ceilings: Floats
    loads: Floats
    left: Ints
    rows: list[Ints]  # the movable items of each partition, highest priority first
    candidates: list[tuple[float, int]] = field(default_factory=list)
    pending: dict[int, int] = field(default_factory=dict)  # keys of each candidate item
    placements: list[tuple[int, int, int]] = field(default_factory=list)

    @classmethod
    def begin(cls, items: Items, starts: Ints, priority: Floats, floor: Floats, ceilings: Floats) -> _Work:
        order = np.lexsort((-items.costs, -priority, starts))
        bounds = np.searchsorted(starts[order], np.arange(len(floor) + 1))
        rows = [order[bounds[d] : bounds[d + 1]] for d in range(len(floor))]
        loads = floor + np.bincount(starts, weights=items.costs * items.counts, minlength=len(floor))
        return cls(items, ceilings, loads, items.counts.copy(), rows)

    def take(self, partition: int, excess: float, lighter_than: float) -> bool:
        """Makes the shortest prefix of the partition's lighter keys that weighs `excess` candidates, if there
        is one.

        Without a bound on the weight (phase II) all that there is will do.
        """
        rows = self.rows[partition]
        costs = self.items.costs[rows]
        rows = rows[(costs < lighter_than) & (costs > 0) & (self.left[rows] > 0)]
        weights = np.cumsum(self.items.costs[rows] * self.left[rows])
        enough = len(weights) > 0 and weights[-1] >= excess
        if not enough and lighter_than < np.inf:
            return False
        last = int(np.searchsorted(weights, excess)) if enough else len(rows)
        for item in rows[:last].tolist():
            self._release(item, int(self.left[item]), partition)
        if enough:
            item, before = int(rows[last]), float(weights[last - 1]) if last else 0.0
            units = int(np.ceil((excess - before) / self.items.costs[item]))
            self._release(item, min(max(units, 1), int(self.left[item])), partition)
        return True

    def _release(self, item: int, units: int, partition: int) -> None:
        self.left[item] -= units
        self.loads[partition] -= units * self.items.costs[item]
        if item not in self.pending:
            heapq.heappush(self.candidates, (-float(self.items.costs[item]), item))
        self.pending[item] = self.pending.get(item, 0) + units

    def place_heaviest(self) -> None:
        """Algorithm 1, lines 3-8, for the heaviest candidate; as many of its like as the loop would place in
        a row."""
        _, item = heapq.heappop(self.candidates)
        cost, units = float(self.items.costs[item]), self.pending.pop(item)
        target = int(np.argmin(self.loads))
        if self.loads[target] + cost > self.ceilings[target]:
            target, placed = self._exchange(cost, target), 1
        else:
            placed = self._run_length(target, cost, units)
        self.loads[target] += placed * cost
        self.placements.append((item, target, placed))
        if units > placed:
            self.pending[item] = units - placed
            heapq.heappush(self.candidates, (-cost, item))

    def _run_length(self, target: int, cost: float, units: int) -> int:
        """How many like keys go to the least loaded partition before another one is less loaded, or it is
        full."""
        if units == 1 or cost == 0:
            return units
        others = np.delete(self.loads, target)
        room = (self.ceilings[target] - self.loads[target]) // cost
        turn = (others.min() - self.loads[target]) // cost + 1 if len(others) else np.inf
        return int(max(1, min(units, room, turn)))

    def _exchange(self, cost: float, least: int) -> int:
        """The first partition, least loaded first, that has room or can make it; else the least loaded
        one."""
        for partition in np.argsort(self.loads, kind="stable").tolist():
            excess = self.loads[partition] + cost - self.ceilings[partition]
            if excess <= 0 or self.take(partition, excess, cost):
                return int(partition)
        return least
