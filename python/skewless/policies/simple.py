"""Simple (appendix, Algorithm 5): forgets where keys are and deals them out anew, heaviest first, to the
least loaded.

Separate from LLFD because it is the yardstick: it levels well, and moves nearly everything to do so.
"""

from __future__ import annotations

import heapq

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies.problem import Ints, Problem, pose
from skewless.policies.settle import settle


def simple(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Deals out the heaviest `max_entries` keys; all others go by hash.

    >>> table = Table(2)
    >>> plan = simple(Snapshot.of(table, [0, 2, 4, 6], [4.0, 3.0, 2.0, 1.0]), table, Limits())
    >>> plan.table.route([0, 2, 4, 6]), plan.imbalance_after
    (array([0, 1, 1, 0], dtype=int32), 0.0)
    """
    problem = pose(snapshot, table, limits)
    return settle(problem, deal(problem))


def deal(problem: Problem) -> Ints:
    """The targets of Simple: at most as many keys leave home as the table has room for."""
    items = problem.items
    heaviest = np.argsort(-items.costs, kind="stable")[: problem.entries]
    targets = items.homes.copy()
    loads = problem.loads(targets)
    loads -= np.bincount(items.homes[heaviest], weights=items.costs[heaviest], minlength=problem.partitions)
    heap = [(load, partition) for partition, load in enumerate(np.maximum(loads, 0.0).tolist())]
    heapq.heapify(heap)
    for item, cost in zip(heaviest.tolist(), items.costs[heaviest].tolist(), strict=True):
        if cost == 0:
            break
        load, partition = heap[0]
        targets[item] = partition
        heapq.heapreplace(heap, (load + cost, partition))
    return targets


def better_of(plan: Plan, problem: Problem, reachable: float) -> Plan:
    """The plan, unless Simple under the same limits levels better.

    Theorems 2 and 4 of the paper say that this cannot happen; costs 2, 8, 5, 11, 4, 10 on two partitions show
    that it does. Simple moves far more, so it is asked only if the plan is above `reachable`, the imbalance
    that would have been fine.
    """
    if plan.imbalance_after <= reachable + 1e-9:
        return plan
    rival = settle(
        problem, deal(problem), ("simple: dealing the keys out anew levels better than exchanging them",)
    )
    return rival if rival.imbalance_after < plan.imbalance_after - 1e-9 else plan
