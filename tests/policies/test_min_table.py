from __future__ import annotations

from instances import K2, K4, figure_4
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.min_table import min_table


def test_figure_4_right_levels_perfectly_with_two_entries() -> None:
    """k3 and k5 go home; k1 leaves d1 and comes back for k2; k2 goes to d2 for k4; k4 goes to d1."""
    snapshot, table = figure_4()
    plan = min_table(snapshot, table, Limits(max_imbalance=0, max_entries=2))
    assert dict(plan.table) == {K2: (1,), K4: (0,)}
    assert plan.met
    assert plan.imbalance_after == 0


def test_entries_that_are_not_needed_are_dropped() -> None:
    table = Table(2, {0: 1, 1: 0}, epoch=1)
    plan = min_table(Snapshot.of(table, [0, 1], [1.0, 1.0], [5, 7]), table, Limits())
    assert len(plan.table) == 0
    assert plan.bytes_moved == 12


def test_entries_of_keys_that_nobody_saw_are_dropped() -> None:
    table = Table(2, {100: 1}, epoch=1)
    plan = min_table(Snapshot.of(table, [0, 1], [1.0, 1.0]), table, Limits())
    assert len(plan.table) == 0
