"""What every placement policy begins and ends with: groups without a node get one, leaving nodes are emptied
as far as the budget goes, and a plan that breaks a limit or does harm is not taken.

Separate from the policies because the promise is the same for all of them.
"""

from __future__ import annotations

import time

import numpy as np

from skewless.model.placement import NOWHERE, Ints, Placement, PlacementLimits, PlacementPlan

TOLERANCE = 1e-9  # of the mean load: sums of floats in another order differ by less


def seat(placement: Placement, limits: PlacementLimits) -> Ints:
    """The placement as it is, with groups of dead nodes seated and leaving nodes emptied, each group on the
    node that it fills least. With too small a budget the groups with the least state leave first: most then
    do.

    >>> from skewless.model.placement import Groups, Nodes
    >>> nodes = Nodes.of(["a", "b", "c"], dead=("a",), leaving=("b",))
    >>> groups = Groups.of([0, 1, 2], [1, 1, 1], [9, 9, 5], nodes=[0, 1, 1])
    >>> seat(Placement(nodes, groups), PlacementLimits(max_bytes=8))
    array([2, 1, 2])
    """
    targets = placement.sources.copy()
    takers = placement.nodes.takers
    if not len(takers):
        return targets
    going = np.concatenate([np.flatnonzero(targets == NOWHERE), _affordable(placement, limits)])
    going = going[np.argsort(-placement.loads[going], kind="stable")]
    loads = placement.node_loads(targets) * placement.nodes.capacities
    for k in going.tolist():
        filled = (loads[takers] + placement.loads[k]) / placement.nodes.capacities[takers]
        targets[k] = takers[int(filled.argmin())]
        loads[targets[k]] += placement.loads[k]
    return targets


def _affordable(placement: Placement, limits: PlacementLimits) -> Ints:
    where = placement.sources
    leaving = np.flatnonzero((where >= 0) & placement.nodes.leaving[where]) if len(where) else where
    by_size = leaving[np.argsort(placement.groups.state_bytes[leaving], kind="stable")]
    within = np.cumsum(placement.groups.state_bytes[by_size]) <= limits.max_bytes
    return np.asarray(by_size[within])


def settle(
    placement: Placement,
    limits: PlacementLimits,
    targets: Ints,
    started: float,
    reasons: tuple[str, ...] = (),
    allowed: float = 0.0,
) -> PlacementPlan:
    """The plan with these targets; if it moves too much, strands more groups or levels worse than to stay,
    the plan that stays. A policy that puts groups together may level worse, up to the distance `allowed`."""
    stay = seat(placement, limits)
    bound = max(placement.distance(stay), allowed) + TOLERANCE * placement.mean
    over = placement.bytes_moved(targets) > limits.max_bytes
    worse = placement.stranded(targets) > placement.stranded(stay) or placement.distance(targets) > bound
    if over or worse:
        said = "it moves more than max_bytes" if over else "it would level worse than what is"
        targets, reasons = stay, (*reasons, f"stays as it is: a plan was found, but {said}.")
    if not len(placement.nodes.takers):
        reasons = (*reasons, "no node may take a group: all are dead or leaving.")
    elif placement.stranded(targets):
        left = placement.stranded(targets)
        reasons = (*reasons, f"max_bytes leaves {left} groups on nodes that are leaving; plan again.")
    return PlacementPlan(placement, targets.copy(), time.perf_counter() - started, reasons)


def better(placement: Placement, first: Ints, second: Ints) -> Ints:
    """The one that strands fewer groups; then the one that levels better, the farthest node first and then
    all nodes together; then the one that moves less."""

    def rank(targets: Ints) -> tuple[float, ...]:
        mean, takers = placement.mean or 1.0, placement.nodes.takers
        off = (placement.node_loads(targets)[takers] - placement.mean) / mean
        farthest, together = float(np.abs(off).max(initial=0.0)), float((off**2).sum())
        moved = placement.bytes_moved(targets)
        return placement.stranded(targets), round(farthest, 6), round(together, 4), moved

    return min(first, second, key=rank)
