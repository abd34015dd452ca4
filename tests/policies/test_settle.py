from __future__ import annotations

import numpy as np

from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.problem import pose
from skewless.policies.settle import settle


def test_within_the_budget_the_moves_with_most_cost_for_each_byte_are_kept() -> None:
    table = Table(2)
    problem = pose(
        Snapshot.of(table, [0, 2, 4], [1.0, 5.0, 6.0], [10, 10, 10]), table, Limits(0, max_bytes=10)
    )
    plan = settle(problem, np.array([1, 1, 0]))
    assert plan.moves.key_hashes.tolist() == [2]


def test_a_shortened_plan_does_not_outgrow_the_table() -> None:
    """Key 4 may only get an entry because key 2 gives its own up; the budget has no room for both moves."""
    table = Table(2, {2: 1}, epoch=1)
    snapshot = Snapshot.of(table, [0, 2, 4], [4.0, 1.0, 4.0], [1, 100, 1])
    problem = pose(snapshot, table, Limits(0, max_entries=1, max_bytes=50))
    plan = settle(problem, np.array([0, 0, 1]))
    assert not plan.changes
    assert any(reason.startswith("bytes: ") for reason in plan.reasons)


def test_a_plan_that_would_do_harm_is_not_made() -> None:
    table = Table(2)
    problem = pose(Snapshot.of(table, [0, 1], [2.0, 1.0]), table, Limits(0))
    plan = settle(problem, np.array([0, 0]))
    assert plan.table is table
    assert any(
        reason.startswith("worse: the best plan found has imbalance 1.0000") for reason in plan.reasons
    )


def test_a_plan_may_give_up_balance_within_the_tolerance() -> None:
    table = Table(2, {2: 1}, epoch=1)
    problem = pose(Snapshot.of(table, [0, 2, 1], [10.0, 1.0, 9.0]), table, Limits(0.1))
    plan = settle(problem, problem.items.homes)
    assert plan.met
    assert len(plan.table) == 0
