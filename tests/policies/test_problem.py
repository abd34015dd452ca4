from __future__ import annotations

import numpy as np
import pytest

from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.problem import MIN_ITEMS, pose


def many_keys(table: Table) -> Snapshot:
    count = MIN_ITEMS + 500
    return Snapshot.of(table, np.arange(count), np.arange(count, dtype=float))


def test_only_the_heaviest_keys_may_move_and_the_rest_is_fixed() -> None:
    table = Table(4)
    problem = pose(many_keys(table), table, Limits(max_entries=10))
    assert problem.key_hashes.tolist() == list(range(500, MIN_ITEMS + 500))
    assert problem.fixed.sum() == pytest.approx(sum(range(500)))


def test_a_light_key_with_an_entry_may_move_as_well() -> None:
    table = Table(4, {3: 0}, epoch=1)
    problem = pose(many_keys(table), table, Limits(max_entries=10))
    assert problem.key_hashes.tolist() == [3, *range(500, MIN_ITEMS + 500)]
    assert problem.items.sources[0] == 0


def test_loads_are_those_of_the_snapshot() -> None:
    table = Table(4, {3: 0, 999_999: 1}, epoch=1)
    snapshot = many_keys(table)
    problem = pose(snapshot, table, Limits(max_entries=10))
    assert problem.loads(problem.items.sources) == pytest.approx(snapshot.loads)


def test_a_key_without_cost_comes_last_even_if_it_has_no_state() -> None:
    table = Table(2)
    problem = pose(Snapshot.of(table, [0, 1, 2], [0.0, 1.0, 1.0], [0, 0, 5]), table, Limits())
    assert problem.items.priority(1.0).tolist() == [0.0, float("inf"), 0.2]


def test_a_key_that_fits_nowhere_beside_the_fixed_load_counts_as_a_giant() -> None:
    table = Table(2)
    snapshot = Snapshot.of(table, [0, 1], [5.0, 1.0], remainder_costs=[4.0, 4.0])
    assert pose(snapshot, table, Limits(0.1)).giants.tolist() == [True, False]
