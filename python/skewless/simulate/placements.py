"""Groups on nodes over time, without Spark: the same placement policies, period after period.

Separate from simulator.py, which routes tuples to workers one by one: here a period's load is given for each
group, and only who holds the group is decided.

A period's load of a group is its own work, and what it costs to send to other nodes and to receive from them.
A plan is made from one period and holds from the next on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from skewless.model.placement import Flows, Groups, Ints, Nodes, Placement, PlacementLimits
from skewless.model.snapshot import Floats
from skewless.policies.groups import PlacementPolicy


@dataclass(frozen=True, eq=False)
class Period:
    """What the groups do in one period, wherever they are."""

    work: Floats
    state_bytes: Floats
    flows: Flows


@dataclass(frozen=True)
class Placed:
    """One period under the placement made for it: the load distance right after the moves, for the loads
    that the plan knew (`planned`) and for the next period's (`realised`); moves; local share of the flows;
    mean load against that of the first period (`load_index`)."""

    before: float
    planned: float
    realised: float
    moves: int
    bytes_moved: float
    collocation: float
    load_index: float
    seconds: float


def replay(
    periods: Iterable[Period],
    policy: PlacementPolicy,
    nodes: Nodes,
    start: Ints,
    limits: PlacementLimits,
    *,
    operators: Ints | None = None,
    remote_cost: float = 0.0,
) -> Iterator[Placed]:
    """Each period after the first under the plan made from the one before.

    `remote_cost` is the load that one unit of flow between two nodes adds at either end.

    >>> from skewless.policies import groups
    >>> period = Period(np.array([30.0, 20.0, 10.0]), np.ones(3), Flows.none())
    >>> steps = replay([period] * 3, groups.get("greedy"), Nodes.of(["a", "b"]), np.zeros(3, int),
    ...                PlacementLimits(max_bytes=1))
    >>> [(step.before, step.realised, step.moves) for step in steps]
    [(30.0, 0.0, 1), (0.0, 0.0, 0)]
    """
    seen: Placement | None = None
    where, first_mean = start, 0.0
    for period in periods:
        if seen is None:
            seen = _observed(period, nodes, where, operators, remote_cost)
            first_mean = seen.mean
            continue
        plan = policy(seen, limits)
        where = plan.targets
        now = _observed(period, nodes, where, operators, remote_cost)
        yield Placed(
            before=plan.distance_before,
            planned=plan.distance_after,
            realised=now.distance(where),
            moves=len(plan.moves),
            bytes_moved=plan.bytes_moved,
            collocation=now.collocation(where),
            load_index=now.mean / first_mean if first_mean else 1.0,
            seconds=plan.seconds,
        )
        seen = now


def _observed(
    period: Period, nodes: Nodes, where: Ints, operators: Ints | None, remote_cost: float
) -> Placement:
    flows, load = period.flows, period.work.copy()
    remote = flows.rates * (where[flows.sources] != where[flows.targets]) * remote_cost
    for ends in (flows.sources, flows.targets):
        load += np.bincount(ends, weights=remote, minlength=len(load))
    groups = Groups.of(np.arange(len(load)), load, period.state_bytes, where, operators)
    return Placement(nodes, groups, flows)
