"""Mixed over the compact form (section IV): like keys become one record with a number, the plan is mapped
back to keys.

Separate from Mixed because it trades exactness for fewer things to decide on. A record is the paper's vector
(d', d, d^h, v_c, v_S, #): next partition, partition now, partition by hash, cost, state bytes, number of
keys. Here d' is `starts` of a record and the target of a placement, the other five are the columns of
`Items`.

Costs and states are made alike by HLHE: multiples of `degree` above it, powers of two below. The paper's rule
("positive: take the larger") misses its own example by one; choosing what keeps the accumulated deviation
smallest meets it:

>>> discretise(np.array([8, 6, 3, 2, 2, 1, 1, 1, 1, 1.0]), degree=4)
array([8., 4., 4., 2., 2., 2., 1., 1., 1., 1.])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Floats, Snapshot
from skewless.model.table import Table
from skewless.policies.llfd import assign, ceilings, level, reachable, seat
from skewless.policies.problem import Ints, Items, Problem, pose
from skewless.policies.settle import entries_of, settle
from skewless.policies.simple import better_of


def compact(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Mixed on records, touched up on the true costs after the records are turned into keys again.

    >>> table = Table(2)
    >>> snapshot = Snapshot.of(table, range(0, 40, 2), [1.0] * 20)    # twenty like keys, all in partition 0
    >>> plan = compact(snapshot, table, Limits())
    >>> len(plan.moves), plan.imbalance_after
    (10, 0.0)
    """
    problem = pose(snapshot, table, limits)
    records = gather(problem)
    order, back = _take_back_order(records), 0
    while True:
        targets = level(problem, _trial(problem, records, order[:back]), problem.items.priority(limits.beta))
        over = entries_of(problem, targets) - problem.entries
        if over <= 0 or back == len(order):
            return better_of(settle(problem, targets), problem, reachable(problem))
        back = _records_for(
            records, order, _keys(records, order[:back]) + max(over, _keys(records, order[:back]))
        )


@dataclass(frozen=True, eq=False)
class Records:
    """The compact form: records as items, and the keys of record r, highest priority first, at
    members[bounds[r]:...]."""

    items: Items
    members: Ints
    bounds: Ints


def gather(problem: Problem) -> Records:
    """Groups the keys that agree in partition, home, discretised cost and discretised state; giants stay
    single keys."""
    light = np.flatnonzero(~problem.giants)
    items = problem.items.at(light)
    costs = discretise(items.costs, problem.limits.degree)
    state_bytes = discretise(items.state_bytes, problem.limits.degree)
    order = np.lexsort((-items.priority(problem.limits.beta), state_bytes, costs, items.homes, items.sources))
    columns = np.stack([items.sources, items.homes, costs, state_bytes])[:, order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = np.any(columns[:, 1:] != columns[:, :-1], axis=0)
    firsts = np.flatnonzero(first)
    bounds = np.append(firsts, len(order))
    heads = order[firsts]
    records = Items(
        costs[heads], state_bytes[heads], np.diff(bounds), items.sources[heads], items.homes[heads]
    )
    return Records(records, light[order], bounds)


def discretise(values: Floats, degree: int) -> Floats:
    """HLHE (section IV-B): each value replaced by a representative, so that the sum of all deviates as little
    as can be.

    The smallest positive value counts as 1. Zero stays zero.
    """
    result = np.zeros(len(values))
    positive = np.flatnonzero(values > 0)
    if not len(positive):
        return result
    ordered = positive[np.argsort(-values[positive], kind="stable")]
    unit = max(
        float(values[ordered[-1]]), float(values[ordered[0]]) * 2.0**-40
    )  # what is lighter still is dust
    scaled = np.maximum(values[ordered] / unit, 1.0)
    low, high = _candidates(scaled, degree)
    result[ordered] = unit * np.array(_choose(scaled.tolist(), low.tolist(), high.tolist()))
    return result


def _candidates(scaled: Floats, degree: int) -> tuple[Floats, Floats]:
    """The representatives around each value; for values beyond the largest one, that one twice."""
    linear = np.floor(scaled / degree) * degree
    below = np.exp2(np.floor(np.log2(scaled)))
    low = np.where(linear > 0, linear, below)
    high = np.where(linear > 0, linear + degree, 2 * below)
    top = max(float(scaled[0] // degree) * degree, degree / 2, 1.0)
    return np.minimum(low, top), np.minimum(high, top)


def _choose(scaled: list[float], low: list[float], high: list[float]) -> list[float]:
    """One of two representatives each, heaviest value first, keeping |sum of value - representative|
    smallest."""
    chosen, deviation = [], 0.0
    for value, below, above in zip(scaled, low, high, strict=True):
        under, over = deviation + value - below, deviation + value - above
        pick, deviation = (below, under) if abs(under) <= abs(over) else (above, over)
        chosen.append(pick)
    return chosen


def _trial(problem: Problem, records: Records, back: Ints) -> Ints:
    """Takes back these records, levels the records, and says where each key then goes."""
    targets, floor = seat(problem, problem.giants, problem.items.sources)
    starts = records.items.sources.copy()
    starts[back] = records.items.homes[back]
    targets[records.members] = np.repeat(starts, records.items.counts)
    used = records.bounds[:-1].copy()
    priority = records.items.priority(problem.limits.beta)
    for record, target, units in assign(records.items, starts, priority, floor, ceilings(problem, floor)):
        targets[records.members[used[record] : used[record] + units]] = target
        used[record] += units
    return targets


def _take_back_order(records: Records) -> Ints:
    away = np.flatnonzero(records.items.sources != records.items.homes)
    return away[np.argsort(records.items.state_bytes[away], kind="stable")]


def _keys(records: Records, some: Ints) -> int:
    return int(records.items.counts[some].sum())


def _records_for(records: Records, order: Ints, keys: int) -> int:
    """How many records, in this order, hold at least so many keys; records go back whole."""
    held = np.cumsum(records.items.counts[order])
    return min(len(order), int(np.searchsorted(held, keys)) + 1)
