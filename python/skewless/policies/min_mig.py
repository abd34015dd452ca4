"""MinMig (section III-B, Algorithm 3): no entry is taken back; keys with much cost for each byte of state
move first.

Separate from MinTable, its opposite: this one lets the table grow.
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


def min_mig(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    """Levels with few bytes, whatever entries it takes.

    >>> table = Table(2)                      # keys 0 and 2 cost the same, 2 has less state
    >>> plan = min_mig(Snapshot.of(table, [0, 2], [1.0, 1.0], [900, 10]), table, Limits())
    >>> plan.moves.key_hashes, plan.bytes_moved
    (array([2], dtype=int32), 10.0)
    """
    problem = pose(snapshot, table, limits)
    plan = settle(problem, level(problem, problem.items.sources, problem.items.priority(limits.beta)))
    return better_of(plan, problem, reachable(problem))
