"""Mixed and Mixed_BF (section III-C, Algorithm 4): take back as few entries as it needs for the table to fit,
then MinMig.

Separate from its two parents because it searches: n, the number of entries taken back, is the one thing it
decides. Entries with the least state go first. Where the paper's loop sets n to the last overrun, and so may
go round for ever, here n only grows, and at least doubles: after some ten trials it is the whole table, and
the search ends.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies.llfd import level, reachable
from skewless.policies.problem import Ints, Problem, pose
from skewless.policies.settle import entries_of, settle
from skewless.policies.simple import better_of


def mixed(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Levels with few bytes, within the table's size.

    >>> table = Table(2)
    >>> snapshot = Snapshot.of(table, [0, 2, 4, 1], [6.0, 2.0, 2.0, 2.0])
    >>> plan = mixed(snapshot, table, Limits(max_entries=2))
    >>> plan.met, len(plan.table), plan.imbalance_before, plan.imbalance_after
    (True, 2, 0.6666666666666667, 0.0)
    """
    problem = pose(snapshot, table, limits)
    entries, back, tried = take_back_order(problem), 0, []
    while True:
        tried.append(trial(problem, entries[:back]))
        over = entries_of(problem, tried[-1]) - problem.entries
        if over <= 0:
            return better_of(settle(problem, tried[-1]), problem, reachable(problem))
        if back == len(entries):
            return _best_trimmed(problem, tried)
        back = min(len(entries), back + max(over, back))


def mixed_bf(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Tries every n and keeps the plan that meets the limits with the fewest bytes; the most level one if
    none does.

    >>> table = Table(2)
    >>> mixed_bf(Snapshot.of(table, [0, 2], [1.0, 1.0]), table, Limits()).imbalance_after
    0.0
    """
    problem = pose(snapshot, table, limits)
    entries = take_back_order(problem)
    plans = [settle(problem, trial(problem, entries[:back])) for back in range(len(entries) + 1)]
    return better_of(_best(problem, plans), problem, reachable(problem))


def take_back_order(problem: Problem) -> Ints:
    """The items that have an entry, least state first. Giants keep their seats: taking one back would only
    toss it about."""
    away = np.flatnonzero((problem.items.sources != problem.items.homes) & ~problem.giants)
    return away[np.argsort(problem.items.state_bytes[away], kind="stable")]


def trial(problem: Problem, back: Ints) -> Ints:
    """The targets after taking back these items and levelling with MinMig's priority."""
    starts = problem.items.sources.copy()
    starts[back] = problem.items.homes[back]
    return level(problem, starts, problem.items.priority(problem.limits.beta))


def _best_trimmed(problem: Problem, tried: list[Ints]) -> Plan:
    """No n made the table fit: the best of what is left of each trial, and of MinTable, after the lightest
    entries went."""
    smallest = level(problem, problem.items.homes, problem.items.costs)
    plans = [settle(problem, targets) for targets in [*tried, smallest]]
    return better_of(_best(problem, plans), problem, reachable(problem))


def _best(problem: Problem, plans: list[Plan]) -> Plan:
    """The best of them, timed to the end of the search: a plan's own time ends when it was made, the others
    came after."""
    return replace(min(plans, key=_rank), seconds=time.perf_counter() - problem.started)


def _rank(plan: Plan) -> tuple[bool, float, float]:
    """Limits first; then, if they are met, the fewest bytes, else the most level."""
    return not plan.met, 0.0 if plan.met else plan.imbalance_after, plan.bytes_moved
