"""MinTable (section III-B, Algorithm 2): every entry is taken back first, then the heaviest keys move: a
small table.

Separate from MinMig, its opposite: this one does not look at state at all.
"""

from __future__ import annotations

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies.llfd import level, reachable
from skewless.policies.problem import pose
from skewless.policies.settle import settle
from skewless.policies.simple import better_of


def min_table(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Levels with few entries, whatever must migrate for it.

    >>> table = Table(2, {5: 0})              # an entry that is no longer needed goes
    >>> len(min_table(Snapshot.of(table, [0, 5], [1.0, 1.0]), table, Limits()).table)
    0
    """
    problem = pose(snapshot, table, limits)
    plan = settle(problem, level(problem, problem.items.homes, problem.items.costs))
    return better_of(plan, problem, reachable(problem))
