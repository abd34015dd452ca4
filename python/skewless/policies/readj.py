"""Readj (Gedik, VLDB Journal 2014, as section V of the paper describes it): sends keys home where it can,
then improves by the best single move or swap of two keys, until the partitions are level or nothing helps.

Separate from the LLFD family because it is the baseline they are compared with: it pairs keys with keys, so
its time grows with the square of the keys it looks at. `sigma` decides which: keys of at least that share
of the mean load.
"""

from __future__ import annotations

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Floats, Snapshot
from skewless.model.table import Table
from skewless.policies.problem import Ints, Problem, pose
from skewless.policies.settle import settle
from skewless.policies.take_back import send_home

MAX_STEPS = 10_000


def readj(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Levels by moves and swaps of hot keys.

    >>> table = Table(2)
    >>> plan = readj(Snapshot.of(table, [0, 2, 1], [5.0, 4.0, 3.0]), table, Limits())
    >>> plan.moves.key_hashes, plan.imbalance_after         # 5 and 3 change places: 7 and 5
    (array([0, 1], dtype=int32), 0.16666666666666674)
    """
    problem = pose(snapshot, table, limits)
    targets = send_home(problem, most=len(problem.items))
    hot = np.flatnonzero(problem.items.costs >= max(limits.sigma * problem.mean, problem.slack))
    loads = problem.loads(targets)
    for _ in range(MAX_STEPS):
        if loads.max() <= problem.ceiling + problem.slack or not _improve(problem, hot, targets, loads):
            break
    return settle(problem, targets)


def _improve(problem: Problem, hot: Ints, targets: Ints, loads: Floats) -> bool:
    """Applies the move or swap out of the heaviest partition that leaves the lower of two peaks; False if
    none helps."""
    heaviest = int(np.argmax(loads))
    giving = hot[targets[hot] == heaviest]
    best, choice = float(loads[heaviest]) - problem.slack, None
    for other in range(problem.partitions):
        if other == heaviest or not len(giving):
            continue
        taking = hot[targets[hot] == other]
        back = np.concatenate([[0.0], problem.items.costs[taking]])  # 0: a plain move, nothing comes back
        shift = problem.items.costs[giving][:, None] - back[None, :]
        peaks = np.maximum(loads[heaviest] - shift, loads[other] + shift)
        at = int(np.argmin(peaks))
        if peaks.flat[at] < best:
            row, column = divmod(at, len(back))
            best, choice = (
                float(peaks.flat[at]),
                (int(giving[row]), other, int(taking[column - 1]) if column else None),
            )
    if choice is None:
        return False
    _apply(problem, targets, loads, choice[0], choice[1])
    if choice[2] is not None:
        _apply(problem, targets, loads, choice[2], heaviest)
    return True


def _apply(problem: Problem, targets: Ints, loads: Floats, item: int, target: int) -> None:
    loads[targets[item]] -= problem.items.costs[item]
    loads[target] += problem.items.costs[item]
    targets[item] = target
