from __future__ import annotations

import pytest

from instances import on_one_partition
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.readj import readj


def test_two_keys_are_swapped_where_no_single_move_helps() -> None:
    """8 + 6 against 5 + 5: moving either key over makes it worse, swapping 8 or 6 with a 5 helps."""
    table = Table(2)
    plan = readj(Snapshot.of(table, [0, 2, 1, 3], [8.0, 6.0, 5.0, 5.0]), table, Limits(max_imbalance=0.1))
    assert plan.imbalance_after == pytest.approx(13 / 12 - 1)
    assert len(plan.moves) == 2


def test_keys_below_sigma_are_not_looked_at() -> None:
    snapshot, table = on_one_partition([1.0] * 20, 2)
    assert not readj(snapshot, table, Limits(sigma=0.2)).changes
    assert readj(snapshot, table, Limits(sigma=0.05)).met


def test_keys_go_home_first_where_there_is_room() -> None:
    table = Table(2, {2: 1}, epoch=1)
    plan = readj(Snapshot.of(table, [0, 1, 2], [10.0, 10.0, 0.1]), table, Limits())
    assert len(plan.table) == 0
