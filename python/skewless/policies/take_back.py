"""Take back: sends entries home whose keys have cooled, least state first, as long as the partitions stay
level.

Separate from the policies that level because it runs when there is nothing to level: it only makes the table
smaller.
"""

from __future__ import annotations

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies.problem import Ints, Problem, pose
from skewless.policies.settle import settle

STEP = 64  # entries a plan: a table goes back in small steps, each cheap and each observed before the next


def take_back(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Sends up to 64 entries home.

    >>> table = Table(2, {2: 1, 4: 1})        # both were hot once; now 4 is cold, 2 still is not
    >>> plan = take_back(Snapshot.of(table, [0, 2, 4], [5.0, 5.0, 0.1]), table, Limits())
    >>> plan.moves.key_hashes, len(plan.table)
    (array([4], dtype=int32), 1)
    """
    problem = pose(snapshot, table, limits)
    return settle(problem, send_home(problem, STEP))


def send_home(problem: Problem, most: int) -> Ints:
    """Targets with up to `most` entries gone home, none of which lifts a partition above the ceiling."""
    items = problem.items
    targets, loads, spent = items.sources.copy(), problem.loads(items.sources), 0.0
    away = np.flatnonzero(items.sources != items.homes)
    for item in away[np.argsort(items.state_bytes[away], kind="stable")].tolist():
        cost, home = float(items.costs[item]), int(items.homes[item])
        spent += float(items.state_bytes[item])
        if most == 0 or spent > problem.limits.max_bytes:
            break
        if cost == 0 or loads[home] + cost <= problem.ceiling + problem.slack:
            loads[targets[item]] -= cost
            loads[home] += cost
            targets[item] = home
            most -= 1
        else:
            spent -= float(items.state_bytes[item])
    return targets
