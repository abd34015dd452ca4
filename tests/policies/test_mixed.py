from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from instances import Instance, figure_4, instances, on_one_partition
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.min_mig import min_mig
from skewless.policies.min_table import min_table
from skewless.policies.mixed import mixed, mixed_bf, take_back_order, trial
from skewless.policies.problem import pose
from skewless.policies.settle import settle
from skewless.policies.simple import simple


def test_with_room_in_the_table_mixed_is_min_mig() -> None:
    snapshot, table = figure_4()
    limits = Limits(max_imbalance=0, max_entries=10)
    assert mixed(snapshot, table, limits).table == min_mig(snapshot, table, limits).table


def test_with_a_tight_table_mixed_takes_entries_back_until_it_fits() -> None:
    snapshot, table = figure_4()
    plan = mixed(snapshot, table, Limits(max_imbalance=0, max_entries=2))
    assert plan.met
    assert len(plan.table) == 2


def test_entries_with_the_least_state_are_taken_back_first() -> None:
    """Three entries, room for two: the plan needs no new entry, so the one with the least state goes home."""
    table = Table(2, {0: 1, 2: 1, 4: 1}, epoch=1)
    snapshot = Snapshot.of(table, [0, 2, 4, 6, 1], [1.0, 1.0, 1.0, 3.0, 0.0], [50, 10, 30, 1, 1])
    plan = mixed(snapshot, table, Limits(max_imbalance=0.5, max_entries=2))
    assert plan.moves.key_hashes.tolist() == [2]


def test_mixed_ends_where_the_papers_loop_goes_round() -> None:
    """A table with room for nothing: every n leaves an overrun."""
    rng = np.random.default_rng(5)
    table = Table(3, {3 * i: 1 + i % 2 for i in range(40)}, epoch=1)
    snapshot = Snapshot.of(table, range(0, 300, 3), rng.integers(1, 50, 100), rng.integers(1, 50, 100))
    plan = mixed(snapshot, table, Limits(max_imbalance=0, max_entries=5))
    assert not plan.met
    assert plan.table is table or len(plan.table) <= 5


def test_a_table_too_small_keeps_the_costliest_entries_and_says_so() -> None:
    """Mean 6: the keys of 5, 4, 3, 3, 3 would leave partition 0 to the three of 2; two of the five may."""
    snapshot, table = on_one_partition([5.0, 4.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0], 4)
    plan = mixed(snapshot, table, Limits(max_imbalance=0, max_entries=2))
    assert set(plan.table.move_hashes.tolist()) == {4, 8}
    assert "entries: the plan wants 5 moves in the table, 2 fit; the costliest were kept" in plan.reasons


def test_brute_force_finds_the_n_that_fits_where_none_taken_back_does_not() -> None:
    snapshot, table = figure_4()
    limits = Limits(max_imbalance=0, max_entries=2)
    assert not min_mig(snapshot, table, limits).met
    assert mixed_bf(snapshot, table, limits).met


@pytest.mark.parametrize("seed", range(5))
def test_with_a_table_too_small_mixed_levels_no_worse_than_its_parents(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hashes, costs = rng.choice(1 << 20, 3000, replace=False), rng.permutation(np.arange(1, 3001) ** -0.85)
    table = Table.of_moves(10, hashes[:20], rng.integers(0, 10, 20), epoch=1)
    limits = Limits(max_imbalance=0.005, max_entries=12)
    snapshot = Snapshot.of(table, hashes, costs, costs * rng.uniform(0.5, 2, 3000))
    plan = mixed(snapshot, table, limits)
    assert any(reason.startswith("entries: ") for reason in plan.reasons)
    for parent in (min_mig, min_table):
        assert plan.imbalance_after <= parent(snapshot, table, limits).imbalance_after


def test_the_counter_example_to_theorems_2_and_4_does_not_come_out_worse_than_simple() -> None:
    """Costs 2, 8, 5, 11, 4, 10: perfect balance exists (20 | 20), LLFD alone misses what Simple finds."""
    for home in ([0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]):
        table = Table(2)
        keys = [2 * i + home[i] for i in range(6)]
        snapshot = Snapshot.of(table, keys, [2, 8, 5, 11, 4, 10], [2, 8, 5, 11, 4, 10])
        limits = Limits(max_imbalance=0)
        assert (
            mixed(snapshot, table, limits).imbalance_after <= simple(snapshot, table, limits).imbalance_after
        )


def test_the_time_of_a_brute_force_plan_is_that_of_the_whole_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a second later; each plan that the search makes takes one, and they all
    count."""
    looks = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(looks)))
    table = Table(3, {3 * i: 1 + i % 2 for i in range(40)}, epoch=1)
    snapshot = Snapshot.of(table, range(0, 300, 3), range(1, 101), range(100, 0, -1))
    plan = mixed_bf(snapshot, table, Limits(max_imbalance=9, max_entries=5))
    last = next(looks) - 1
    assert last > 40
    assert plan.seconds == last


@given(instance=instances(most_keys=14))
@settings(max_examples=100, deadline=None)
def test_brute_force_needs_no_more_bytes_than_any_n_that_meets_the_limits(instance: Instance) -> None:
    snapshot = instance.snapshot()
    problem = pose(snapshot, instance.table, instance.limits)
    entries, best = take_back_order(problem), mixed_bf(snapshot, instance.table, instance.limits)
    for back in (0, len(entries) // 2, len(entries)):
        plan = settle(problem, trial(problem, entries[:back]))
        assert not plan.met or (best.met and best.bytes_moved <= plan.bytes_moved)


def test_mixed_moves_less_than_min_table_on_a_drifted_stream() -> None:
    rng = np.random.default_rng(11)
    hashes = rng.choice(1 << 20, 5000, replace=False)
    costs = rng.permutation(np.arange(1, 5001) ** -0.85)
    limits = Limits(max_imbalance=0.05, max_entries=500)
    table = Table(10)
    table = mixed(Snapshot.of(table, hashes, costs, costs), table, limits).table
    swapped = rng.choice(5000, 200, replace=False)
    costs[swapped] = costs[rng.permutation(swapped)]
    heavy = np.argsort(-costs)[:20]
    costs[heavy] = costs[rng.permutation(heavy)]
    snapshot = Snapshot.of(table, hashes, costs, costs)
    ours, theirs = mixed(snapshot, table, limits), min_table(snapshot, table, limits)
    assert ours.met
    assert theirs.met
    assert ours.imbalance_before > 0.05
    assert 0 < ours.bytes_moved < theirs.bytes_moved


@pytest.mark.parametrize("policy", [mixed, min_mig, min_table])
def test_a_giant_does_not_wander_while_the_light_keys_drift(policy: object) -> None:
    rng = np.random.default_rng(2)
    table, giant = Table(4), 1003
    for _ in range(10):
        costs = np.append(rng.uniform(0, 2, 60), 100.0)
        snapshot = Snapshot.of(table, [*range(60), giant], costs, costs)
        plan = policy(snapshot, table, Limits(max_imbalance=0.05, max_entries=100))  # type: ignore[operator]
        assert giant not in plan.moves.key_hashes
        table = plan.table
