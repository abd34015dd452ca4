from __future__ import annotations

from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.take_back import STEP, take_back


def test_a_cold_entry_goes_home_and_a_hot_one_stays() -> None:
    table = Table(2, {2: 1, 4: 1}, epoch=1)
    plan = take_back(Snapshot.of(table, [0, 2, 4], [5.0, 5.0, 0.1], [9, 9, 9]), table, Limits())
    assert dict(plan.table) == {2: (1,)}
    assert plan.table.epoch == 2


def test_a_table_goes_back_in_steps_least_state_first() -> None:
    entries = {2 * i: 1 for i in range(1, STEP + 11)}
    table = Table(2, entries, epoch=1)
    state = list(range(STEP + 10, 0, -1))
    plan = take_back(Snapshot.of(table, list(entries), [0.0] * len(entries), state), table, Limits())
    assert len(plan.moves) == STEP
    assert sorted(plan.moves.state_bytes.tolist()) == [float(i + 1) for i in range(STEP)]


def test_it_stops_at_the_byte_budget() -> None:
    table = Table(2, {2: 1, 4: 1, 6: 1}, epoch=1)
    plan = take_back(Snapshot.of(table, [2, 4, 6], [0.0] * 3, [5, 6, 7]), table, Limits(max_bytes=11))
    assert plan.moves.key_hashes.tolist() == [2, 4]
