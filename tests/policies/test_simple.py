from __future__ import annotations

from instances import on_one_partition
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.simple import simple


def test_keys_are_dealt_out_heaviest_first_to_the_least_loaded() -> None:
    """10 | 9 | 8, then 7 joins 8, 5 joins 9, 4 joins 10: loads 14, 14, 15."""
    snapshot, table = on_one_partition([4.0, 5.0, 7.0, 8.0, 9.0, 10.0], 3)
    plan = simple(snapshot, table, Limits())
    assert plan.table.route(snapshot.key_hashes).tolist() == [0, 1, 2, 2, 1, 0]


def test_where_keys_are_now_does_not_matter() -> None:
    keys, costs = [0, 3, 6, 9], [4.0, 3.0, 2.0, 1.0]
    tables = Table(3, epoch=1), Table(3, {0: 2, 6: 1}, epoch=1)
    first, second = (simple(Snapshot.of(table, keys, costs), table, Limits()).table for table in tables)
    assert first == second


def test_only_the_heaviest_keys_that_the_table_has_room_for_leave_home() -> None:
    snapshot, table = on_one_partition([8.0, 7.0, 6.0, 5.0], 2)
    plan = simple(snapshot, table, Limits(max_entries=1))
    assert len(plan.table) == 1
    assert plan.moves.key_hashes.tolist() == [2]
