"""Flux: nodes in order of load, the heaviest paired with the lightest, the second with the second, and one
group moved in each pair.

Shah, Hellerstein, Chandrasekaran, Franklin: "Flux: An Adaptive Partitioning Operator for Continuous Query
Systems" (ICDE 2003), as the ALBIC paper (section IV-A) compares with it. Separate from greedy.py because it
decides pair by pair and never asks what a group's state weighs: that is the yardstick.

What we changed, and why: the round is repeated until no pair gains, since one group per pair and period is
the paper's bound on work, and here max_bytes is; a group that does not fit into what is left is passed over.
"""

from __future__ import annotations

import time

import numpy as np

from skewless.model.placement import Ints, Placement, PlacementLimits, PlacementPlan
from skewless.policies.groups.settle import TOLERANCE, seat, settle


def flux(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
    """Levels pair by pair.

    >>> from skewless.model.placement import Groups, Nodes
    >>> groups = Groups.of([0, 1, 2], [30, 20, 10], [1, 1, 1], nodes=[0, 0, 1])
    >>> flux(Placement(Nodes.of(["a", "b"]), groups), PlacementLimits()).moves
    {0: 'b', 2: 'a'}
    """
    started = time.perf_counter()
    targets, moved = seat(placement, limits), True
    while moved:
        loads = placement.node_loads(targets)
        order = placement.nodes.takers[np.argsort(-loads[placement.nodes.takers], kind="stable")]
        half = len(order) // 2
        pairs = zip(order[:half].tolist(), order[::-1][:half].tolist(), strict=True)
        done = [_moves(placement, limits, targets, giver, taker) for giver, taker in pairs]
        moved = any(done)
    return settle(placement, limits, targets, started)


def _moves(placement: Placement, limits: PlacementLimits, targets: Ints, giver: int, taker: int) -> bool:
    """Moves the heaviest group that leaves the heavier of the two nodes lighter than the giver was."""
    loads, room = placement.node_loads(targets), placement.nodes.capacities
    mine = np.flatnonzero(targets == giver)
    for k in mine[np.argsort(-placement.loads[mine], kind="stable")].tolist():
        filled = loads[taker] + placement.loads[k] / room[taker]
        if placement.loads[k] == 0 or filled >= loads[giver] - TOLERANCE * placement.mean:
            continue
        targets[k] = taker
        if placement.bytes_moved(targets) <= limits.max_bytes:
            return True
        targets[k] = giver
    return False
