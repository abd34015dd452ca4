"""COLA: the graph of all groups cut anew into one part per node, balanced, with little flow between parts.

Khandekar, Hildrum, Parekh, Rajan, Wolf, Wu, Andrade, Gedik: "COLA: Optimizing Stream Processing Applications
via Graph Partitioning" (Middleware 2009), which the ALBIC paper (section IV-B) compares with. Separate from
albic.py because it starts from nothing: where the groups are now does not matter to it.

What we changed, and why: COLA cuts in two, again and again, until each part fits its host; METIS cuts into as
many parts as there are nodes at once, with the same aim. Its plan is taken whole or not at all: if it moves
more than max_bytes, all stays as it is, and the plan says so.
"""

from __future__ import annotations

import time

import numpy as np

from skewless.model.placement import Placement, PlacementLimits, PlacementPlan
from skewless.policies.groups import graph
from skewless.policies.groups.greedy import level
from skewless.policies.groups.settle import settle


def cola(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
    """Puts together what talks to each other.

    >>> from skewless.model.placement import Flows, Groups, Nodes
    >>> groups = Groups.of([0, 1, 2, 3], [20] * 4, [1] * 4, nodes=[0, 1, 0, 1])
    >>> placement = Placement(Nodes.of(["a", "b"]), groups, Flows.of([0, 2], [1, 3], [9, 9]))
    >>> plan = cola(placement, PlacementLimits())
    >>> plan.placement.collocation(plan.placement.sources), plan.placement.collocation(plan.targets)
    (0.0, 1.0)
    """
    started = time.perf_counter()
    if not graph.installed():
        return settle(placement, limits, level(placement, limits), started, (graph.MISSING,))
    takers = placement.nodes.takers
    if not len(takers) or not len(placement.loads):
        return settle(placement, limits, placement.sources, started)
    shares = placement.nodes.capacities[takers]
    parts = graph.cut(np.arange(len(placement.loads)), placement.flows, placement.loads, shares)
    return settle(placement, limits, takers[parts], started, allowed=limits.max_distance)
