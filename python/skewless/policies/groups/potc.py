"""Power of two choices, over groups: each group has two nodes by hash, and sits on the one with less load.

Nasir, De Francisci Morales, García-Soriano, Kourtellis, Serafini: "The Power of Both Choices: Practical Load
Balancing for Distributed Stream Processing Engines" (ICDE 2015), which the ALBIC paper (section IV-A)
compares with. Separate from `simulate/schemes/potc.py` because that places keys, this places groups.

What we changed, and why: there a key's tuples go to both nodes, and partial results are merged. A partition
of a stateful operator is in one place, so here the whole group chooses, heaviest first; it leaves a node
that is neither of its two only if that lowers the heavier of the nodes concerned, since a move costs state.
"""

from __future__ import annotations

import hashlib
import time

import numpy as np

from skewless.model.placement import Ints, Placement, PlacementLimits, PlacementPlan
from skewless.model.snapshot import Floats
from skewless.policies.groups.settle import TOLERANCE, seat, settle


def potc(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
    """Each group weighs where it is against its two nodes.

    >>> from skewless.model.placement import Groups, Nodes
    >>> groups = Groups.of([0, 1, 2], [30, 20, 10], [1, 1, 1], nodes=[0, 0, 0])
    >>> plan = potc(Placement(Nodes.of(["a", "b"]), groups), PlacementLimits())
    >>> plan.distance_before, plan.distance_after
    (30.0, 0.0)
    """
    started = time.perf_counter()
    targets = seat(placement, limits)
    loads = placement.node_loads(targets)
    for k in np.argsort(-placement.loads, kind="stable").tolist():
        for node in _choices(placement, k):
            _move_if_lighter(placement, limits, targets, loads, k, node)
    return settle(placement, limits, targets, started)


def _choices(placement: Placement, k: int) -> list[int]:
    """Two nodes by hash among those that may take groups; they may coincide."""
    takers = placement.nodes.takers
    digest = hashlib.blake2b(int(placement.groups.ids[k]).to_bytes(8, "little", signed=True)).digest()
    numbers = [int.from_bytes(digest[at : at + 8], "little") for at in (0, 8)]
    return [int(takers[number % len(takers)]) for number in numbers] if len(takers) else []


def _move_if_lighter(
    placement: Placement, limits: PlacementLimits, targets: Ints, loads: Floats, k: int, node: int
) -> None:
    here, load, room = int(targets[k]), placement.loads[k], placement.nodes.capacities
    if node == here or loads[node] + load / room[node] >= loads[here] - TOLERANCE * placement.mean:
        return
    targets[k] = node
    if placement.bytes_moved(targets) > limits.max_bytes:
        targets[k] = here
        return
    loads[here] -= load / room[here]
    loads[node] += load / room[node]
