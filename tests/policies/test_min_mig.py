from __future__ import annotations

import numpy as np
import pytest

from instances import K1, K2, figure_4
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.min_mig import min_mig
from skewless.policies.problem import pose


def test_the_priority_of_k1_and_k2_follows_beta_as_in_the_paper() -> None:
    """With state equal to cost, beta = 1 ranks k1 and k2 alike, beta = 0.5 ranks the lighter k2 first."""
    snapshot, table = figure_4()
    problem = pose(snapshot, table, Limits())
    k1, k2 = (int(np.flatnonzero(problem.key_hashes == key)[0]) for key in (K1, K2))
    even, low = problem.items.priority(1.0), problem.items.priority(0.5)
    assert even[k1] == even[k2] == pytest.approx(1.0)
    assert low[k2] > low[k1]


def test_the_key_with_more_cost_for_each_byte_moves() -> None:
    table = Table(2)
    snapshot = Snapshot.of(table, [0, 2, 4], [3.0, 3.0, 2.0], [300, 30, 3000])
    plan = min_mig(snapshot, table, Limits(max_imbalance=0.3))
    assert plan.moves.key_hashes.tolist() == [2]
    assert plan.met


def test_no_entry_is_taken_back() -> None:
    table = Table(2, {0: 1, 2: 1}, epoch=1)
    snapshot = Snapshot.of(table, [0, 2, 4, 6], [1.0, 1.0, 1.0, 1.0])
    plan = min_mig(snapshot, table, Limits())
    assert plan.table is table


def test_a_budget_keeps_the_moves_that_level_most_for_each_byte() -> None:
    """Level would be two keys moved, 20 bytes; 10 are allowed."""
    table = Table(2)
    snapshot = Snapshot.of(table, [0, 2, 4, 6], [1.0, 1.0, 1.0, 1.0], [10, 10, 10, 10])
    plan = min_mig(snapshot, table, Limits(max_imbalance=0, max_bytes=10))
    assert plan.bytes_moved == 10
    assert plan.imbalance_after == 0.5
    assert "bytes: the plan wants to move 20 bytes, 10 may; 1 of 2 moves were kept" in plan.reasons
