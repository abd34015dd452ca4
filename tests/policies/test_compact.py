from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances import on_one_partition
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.compact import _trial, compact, discretise, gather
from skewless.policies.mixed import mixed
from skewless.policies.problem import pose

FIGURE_6 = np.array([8, 6, 3, 2, 2, 1, 1, 1, 1, 1], dtype=float)


def test_figure_6_b_deviates_by_nothing() -> None:
    """Representatives 8, 4, 2, 1: 6 becomes 4 (+2), 3 becomes 4 (+1), one 1 becomes 2 (0)."""
    found = discretise(FIGURE_6, degree=4)
    assert found.tolist() == [8, 4, 4, 2, 2, 2, 1, 1, 1, 1]
    assert (FIGURE_6 - found).sum() == 0


def test_figure_6_a_the_simple_piecewise_function_deviates_by_three() -> None:
    simple = np.select([FIGURE_6 <= 3, FIGURE_6 <= 6, FIGURE_6 <= 9], [2.0, 5.0, 8.0])
    assert abs((FIGURE_6 - simple).sum()) == 3


@given(values=st.lists(st.floats(0.01, 1000), min_size=1, max_size=60), degree=st.sampled_from([1, 2, 8, 64]))
@settings(max_examples=100, deadline=None)
def test_representatives_are_the_neighbours_on_the_scale_and_do_not_add_up_to_an_error(
    values: list[float], degree: int
) -> None:
    array = np.array(values)
    unit = array.min()
    found = discretise(array, degree) / unit
    top = max(array.max() / unit // degree * degree, degree / 2, 1)
    linear = np.isclose(found % degree, 0) | np.isclose(found % degree, degree)
    power = np.isclose(np.exp2(np.round(np.log2(found))), found)
    assert np.all((linear | power) & (found <= top * (1 + 1e-9)))
    below = array / unit < top
    assert np.all(np.abs(found - array / unit)[below] <= degree * (1 + 1e-9))


def test_zero_stays_zero() -> None:
    assert discretise(np.array([0.0, 4.0, 0.0]), 8).tolist() == [0.0, 4.0, 0.0]
    assert discretise(np.zeros(3), 8).tolist() == [0.0] * 3


def test_like_keys_become_one_record_and_a_different_home_another() -> None:
    table = Table(2, {1: 0}, epoch=1)
    snapshot = Snapshot.of(table, [0, 2, 4, 1], [4.0, 4.0, 4.0, 4.0], [4, 4, 4, 4])
    records = gather(pose(snapshot, table, Limits(max_imbalance=9)))
    assert records.items.counts.tolist() == [3, 1]
    assert records.items.sources.tolist() == [0, 0]
    assert records.items.homes.tolist() == [0, 1]
    assert sorted(records.members.tolist()) == [0, 1, 2, 3]


def test_a_record_is_mapped_back_to_the_keys_of_highest_priority() -> None:
    """Four keys fall into one record (cost 1, state 64); half of them must go: those with the least state."""
    table = Table(2)
    snapshot = Snapshot.of(table, [0, 2, 4, 6, 1], [1.0] * 4 + [1e-9], [66, 64, 67, 65, 1])
    plan = compact(snapshot, table, Limits(max_imbalance=0.01, degree=64, beta=1.0))
    assert plan.moves.key_hashes.tolist() == [2, 6]


def test_the_keys_of_one_record_are_spread_over_several_targets() -> None:
    snapshot, table = on_one_partition([2.0] * 12, 4)
    problem = pose(snapshot, table, Limits(max_imbalance=0))
    records = gather(problem)
    assert len(records.items) == 1
    assert problem.loads(_trial(problem, records, np.array([], dtype=np.int64))).tolist() == [6.0] * 4


def test_the_compact_form_levels_as_well_as_single_keys() -> None:
    rng = np.random.default_rng(4)
    table = Table(8)
    costs = rng.permutation(np.ceil(1e4 * np.arange(1, 4001) ** -0.85))
    snapshot = Snapshot.of(table, np.arange(4000) * 7919, costs, costs)
    limits = Limits(max_imbalance=0.02, max_entries=400, degree=64)
    records = gather(pose(snapshot, table, limits))
    assert len(records.items) < 2000
    assert int(records.items.counts.sum()) == 4000
    assert compact(snapshot, table, limits).imbalance_after <= 0.02
    assert compact(snapshot, table, limits).bytes_moved == pytest.approx(
        mixed(snapshot, table, limits).bytes_moved, rel=0.25
    )
