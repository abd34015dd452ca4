"""ALBIC: groups that send each other much are kept together and brought together, one pair a plan, while the
program of milp.py keeps the nodes level.

Madsen, Zhou, Cao: "Integrative Dynamic Reconfiguration in a Parallel Stream Processing Engine" (ICDE 2017),
section III-B2, steps 1 to 4. Needs the extras `milp` and `graph`. Separate from milp.py because that program
knows no flows: ALBIC only tells it which groups travel as one, and which pair goes where.

What we changed, and why:
- Step 2: "ties are broken randomly": the load decides, so that a plan is the same for the same input.
- Step 3: "one random pair" of the largest flow: the one with the smallest ids, for the same reason. A pair
  whose move exceeds max_bytes, or that leads to a node which may take nothing, is passed over: the program
  would have no solution.
- Step 4: maxPL is halved twice; if maxLD does not hold then either, this plan only levels.
"""

from __future__ import annotations

import importlib.util
import math
import time
from dataclasses import replace

import numpy as np

from skewless.model.placement import (
    NOWHERE,
    Bools,
    Groups,
    Ints,
    Placement,
    PlacementLimits,
    PlacementPlan,
)
from skewless.policies.groups import graph
from skewless.policies.groups.greedy import level
from skewless.policies.groups.milp import MISSING, solve
from skewless.policies.groups.settle import TOLERANCE, settle

HALVINGS = (1.0, 0.5, 0.25, None)  # of maxPL; None: every group for itself, and no pair


def albic(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
    """Levels, and improves one pair.

    >>> from skewless.model.placement import Flows, Nodes
    >>> groups = Groups.of([0, 1, 2, 3], [20] * 4, [1] * 4, nodes=[0, 0, 1, 1], operators=[0, 0, 1, 1])
    >>> flows = Flows.of([0, 1], [2, 3], [9, 8])
    >>> plan = albic(Placement(Nodes.of(["a", "b"]), groups, flows), PlacementLimits())
    >>> plan.distance_after, round(plan.placement.collocation(plan.targets), 2)
    (0.0, 1.0)
    """
    started = time.perf_counter()
    missing = _missing()
    if missing:
        return settle(placement, limits, level(placement, limits), started, missing)
    if not len(placement.nodes.takers) or not len(placement.loads):
        return settle(placement, limits, placement.sources, started)
    worth = worth_it(placement, limits)
    for halving in HALVINGS:
        units, pair = np.arange(len(placement.loads)), None
        if halving is not None:
            units = kept_together(placement, limits, worth, halving * limits.max_part * placement.mean)
            pair = next_pair(placement, limits, worth, units)
        targets, reasons = _solve(placement, limits, units, pair)
        if placement.distance(targets) <= limits.max_distance + TOLERANCE * placement.mean:
            break
    return settle(placement, limits, targets, started, reasons, limits.max_distance)


def worth_it(placement: Placement, limits: PlacementLimits) -> Bools:
    """Step 1: the flows i -> j that exceed sF times what i sends to a group downstream on average."""
    flows, kinds = placement.flows, placement.groups.operators
    sent = np.bincount(flows.sources, weights=flows.rates, minlength=len(kinds))
    fed: dict[int, set[int]] = {}
    for source, target in zip(kinds[flows.sources].tolist(), kinds[flows.targets].tolist(), strict=True):
        fed.setdefault(source, set()).add(target)
    sizes = {kind: int((kinds == kind).sum()) for kind in set(kinds.tolist())}
    downstream = np.array([max(1, sum(sizes[t] for t in fed.get(kind, ()))) for kind in kinds.tolist()])
    average = (sent / downstream)[flows.sources] if len(flows) else flows.rates
    return np.asarray((flows.rates > average * limits.score_factor) & (flows.sources != flows.targets))


def kept_together(placement: Placement, limits: PlacementLimits, worth: Bools, max_part: float) -> Ints:
    """Step 2: a number for each group, the same for groups that travel as one: pairs on one node are joined
    into sets, and a set that is too heavy, or costs too much to migrate, is cut."""
    units = _sets(placement, worth)
    for unit, size in zip(*np.unique(units, return_counts=True), strict=True):
        if size > 1:
            members = np.flatnonzero(units == unit)
            parts = _parts(placement, limits, members, max_part)
            units[members] = members[np.array([int(np.flatnonzero(parts == p)[0]) for p in parts.tolist()])]
    return units


def _sets(placement: Placement, worth: Bools) -> Ints:
    """The smallest member of each group's set."""
    where, flows = placement.sources, placement.flows
    units = np.arange(len(where))
    together = worth & (where[flows.sources] == where[flows.targets]) & (where[flows.sources] >= 0)
    for source, target in zip(
        flows.sources[together].tolist(), flows.targets[together].tolist(), strict=True
    ):
        first, second = sorted((int(units[source]), int(units[target])))
        units[units == second] = first
    return units


def _parts(placement: Placement, limits: PlacementLimits, members: Ints, max_part: float) -> Ints:
    load, size = placement.loads[members], placement.groups.state_bytes[members]
    by_load = _ratio(float(load.sum()), max_part)
    by_size = _ratio(float(size.sum()), limits.max_bytes)
    parts = min(len(members), max(1, math.ceil(min(max(by_load, by_size), len(members)))))
    return graph.cut(members, placement.flows, size if by_size > by_load else load, np.ones(parts))


def _ratio(amount: float, most: float) -> float:
    return amount / most if most > 0 else (math.inf if amount > 0 else 0.0)


def next_pair(
    placement: Placement, limits: PlacementLimits, worth: Bools, units: Ints
) -> tuple[Ints, int] | None:
    """Step 3: the groups to bring together, and the node where; None if no pair can be improved."""
    flows, where = placement.flows, placement.sources
    apart = np.flatnonzero(worth & (where[flows.sources] != where[flows.targets]))
    for flow in apart[np.argsort(-flows.rates[apart], kind="stable")].tolist():
        first, second = int(flows.sources[flow]), int(flows.targets[flow])
        node = _meeting(placement, units, first, second)
        members = np.flatnonzero((units == units[first]) | (units == units[second]))
        going = members[(where[members] != node) & (where[members] >= 0)]
        if node != NOWHERE and float(placement.groups.state_bytes[going].sum()) <= limits.max_bytes:
            return members, node
    return None


def _meeting(placement: Placement, units: Ints, first: int, second: int) -> int:
    """The node of the one that is in a set; if both are or neither is, the one with less load."""
    pair = [k for k in (first, second) if placement.sources[k] in placement.nodes.takers]
    in_set = [k for k in pair if int((units == units[k]).sum()) > 1]
    chosen = in_set if len(in_set) == 1 else pair
    loads = placement.node_loads(placement.sources)
    nodes = [int(placement.sources[k]) for k in chosen]
    return min(nodes, key=lambda node: (loads[node], node)) if nodes else NOWHERE


def _solve(
    placement: Placement, limits: PlacementLimits, units: Ints, pair: tuple[Ints, int] | None
) -> tuple[Ints, tuple[str, ...]]:
    """Step 4: the program over units instead of groups, with the pair's place given."""
    names, unit = np.unique(units, return_inverse=True)
    loads = {
        name: np.bincount(unit, weights=row, minlength=len(names))
        for name, row in zip(placement.groups.resources, placement.groups.loads, strict=True)
    }
    sizes = np.bincount(unit, weights=placement.groups.state_bytes, minlength=len(names))
    whole = Groups.of(names, loads, sizes, placement.sources[names])
    pins = np.full(len(names), NOWHERE)
    if pair is not None:
        pins[unit[pair[0]]] = pair[1]
    in_time = replace(limits, seconds=limits.seconds / len(HALVINGS))
    targets, reasons = solve(Placement(placement.nodes, whole), in_time, pins)
    return targets[unit], reasons


def _missing() -> tuple[str, ...]:
    if not graph.installed():
        return (graph.MISSING,)
    return () if importlib.util.find_spec("highspy") else (MISSING,)
