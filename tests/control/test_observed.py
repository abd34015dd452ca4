from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.control.costs import rates_of, seconds_per_row, snapshot_of
from skewless.control.observed import ObservedBatch
from skewless.errors import SettingError
from skewless.model.table import Table


def batch(
    number: int = 1,
    rows: tuple[int, ...] = (100, 50),
    run_ms: tuple[int, ...] | None = None,
    keys: dict[int, int] | None = None,
    *,
    epoch: int = 0,
    row_bytes: int = 10,
) -> ObservedBatch:
    """Ten milliseconds and ten bytes a row, unless told otherwise."""
    keys = keys or {}
    run_ms = tuple(10 * count for count in rows) if run_ms is None else run_ms
    sizes = [row_bytes * count for count in rows]
    return ObservedBatch(number, epoch, 1000, rows, sizes, run_ms, list(keys), list(keys.values()))  # type: ignore[arg-type]


def test_costs_are_rows_times_the_seconds_per_row() -> None:
    one = batch(rows=(100, 50), run_ms=(2000, 1000), keys={4: 60, 3: 20, 6: 10})
    snapshot = snapshot_of([one], Table(2))
    assert snapshot.key_hashes.tolist() == [3, 4, 6]
    assert snapshot.costs.tolist() == pytest.approx([20 * 0.02, 60 * 0.02, 10 * 0.02])
    assert snapshot.remainder_costs.tolist() == pytest.approx([30 * 0.02, 30 * 0.02])
    assert snapshot.loads.tolist() == pytest.approx([2.0, 1.0])
    assert snapshot.state_bytes.tolist() == pytest.approx([200, 600, 100])
    assert snapshot.remainder_bytes.tolist() == pytest.approx([300, 300])
    assert snapshot.batches == (1,)


def test_a_window_adds_up_the_batches_that_ran_under_the_table_in_force() -> None:
    table = Table(2, {4: 1}, epoch=2)
    older = batch(1, rows=(500, 0), keys={4: 400}, epoch=1)
    first = batch(2, rows=(20, 80), keys={4: 70}, epoch=2)
    second = batch(3, rows=(40, 60), run_ms=(800, 1200), keys={4: 50, 2: 5}, epoch=2)
    snapshot = snapshot_of([older, first, second], table)
    assert snapshot.batches == (2, 3)
    assert snapshot.epoch == 2
    assert snapshot.key_hashes.tolist() == [2, 4]
    assert snapshot.costs.tolist() == pytest.approx([5 * 0.02, 70 * 0.01 + 50 * 0.02])
    assert snapshot.sources.tolist() == [0, 1]
    assert snapshot.loads.tolist() == pytest.approx([0.2 + 0.8, 0.8 + 1.2])


def test_under_an_earlier_table_a_key_weighs_where_the_table_in_force_puts_it() -> None:
    before, table = Table(2), Table(2, {4: 1}, epoch=1)
    older = batch(1, rows=(100, 20), keys={4: 60})
    newer = batch(2, rows=(30, 90), keys={4: 50}, epoch=1)
    snapshot = snapshot_of([older, newer], table, earlier={0: before})
    assert snapshot.batches == (1, 2)
    assert snapshot.sources.tolist() == [1]
    assert snapshot.costs.tolist() == pytest.approx([1.1])
    assert snapshot.remainder_costs.tolist() == pytest.approx([0.4 + 0.3, 0.2 + 0.4])


@pytest.mark.parametrize("decay", [1.0, 0.5, 0.1])
def test_older_batches_count_less_and_the_mean_weight_is_one(decay: float) -> None:
    batches = [batch(number, rows=(30, 30), keys={4: 10 * number}) for number in (1, 2, 3)]
    snapshot = snapshot_of(batches, Table(2), decay=decay)
    weights = np.array([decay**2, decay, 1.0])
    assert snapshot.costs.tolist() == pytest.approx([0.1 * 3 * float(weights @ [1, 2, 3]) / weights.sum()])
    assert snapshot.loads.tolist() == pytest.approx([0.9, 0.9])


def test_measured_state_counts_before_estimates() -> None:
    measured = replace(
        batch(keys={4: 60, 3: 20}),
        state_hashes=[8, 4],
        state_bytes=[70, 900],
        partition_state_bytes=[5000, -1],
    )
    snapshot = snapshot_of([measured], Table(2, {8: 1}))
    assert dict(zip(snapshot.key_hashes.tolist(), snapshot.state_bytes.tolist(), strict=True)) == {
        3: 200,
        4: 900,
        8: 70,
    }
    assert snapshot.remainder_bytes.tolist() == pytest.approx([5000 - 900, 300])


def test_what_was_measured_last_counts() -> None:
    older = replace(batch(1, keys={4: 60}), state_hashes=[4], state_bytes=[10])
    newer = replace(batch(2, keys={4: 60}), state_hashes=[4], state_bytes=[20])
    assert snapshot_of([older, newer], Table(2)).state_bytes.tolist() == [20]


def test_a_dear_partition_counts_once_three_batches_agree() -> None:
    rows = (100, 200, 300, 250)
    even = tuple(500 + 2 * count for count in rows)
    slow = (*even[:3], 2500)
    for times, dear in (
        ([slow], False),
        ([slow, slow], False),
        ([even, slow, even], False),
        ([slow, even, slow], True),
    ):
        loads = snapshot_of([batch(i, rows, run_ms) for i, run_ms in enumerate(times)], Table(4)).loads
        assert (loads[3] > 1.5 * loads[2]) == dear, times


def test_a_batch_without_times_weighs_no_more_a_row_than_the_others() -> None:
    rows = (100, 200, 300, 240)  # half a second a task, which is no matter of rows
    timed = batch(1, rows, tuple(500 + count for count in rows))
    untimed = batch(2, rows, (-1, -1, -1, -1))
    alone, both = snapshot_of([timed], Table(4)).loads, snapshot_of([timed, untimed], Table(4)).loads
    assert both == pytest.approx(2 * alone)


def test_a_partition_of_unknown_time_costs_the_mean_of_the_others() -> None:
    one = batch(rows=(10, 30, 5, 20), run_ms=(2000, 2000, -1, 0))
    assert seconds_per_row(one).tolist() == pytest.approx([0.1, 0.1, 0.1, 0.1])


def test_where_no_time_is_known_rows_count() -> None:
    assert snapshot_of([batch(run_ms=(-1, -1), keys={4: 60})], Table(2)).loads.tolist() == [100, 50]


def test_a_batch_without_times_is_costed_by_the_rest_of_its_window() -> None:
    timed, untimed = batch(1), batch(2, run_ms=(-1, -1))
    assert snapshot_of([timed, untimed], Table(2)).loads.tolist() == pytest.approx([2.0, 1.0])


def test_every_entry_is_tracked_even_if_the_sketch_does_not_name_it() -> None:
    snapshot = snapshot_of([batch(keys={4: 60})], Table(2, {8: 1, 9: 0}))
    assert snapshot.key_hashes.tolist() == [4, 8, 9]
    assert snapshot.costs.tolist() == pytest.approx([0.6, 0, 0])
    assert snapshot.sources.tolist() == [0, 1, 0]


def test_an_overestimating_sketch_is_scaled_to_what_the_partition_carried() -> None:
    snapshot = snapshot_of([batch(rows=(100, 50), keys={4: 150, 6: 50, 3: 10})], Table(2))
    assert snapshot.costs.tolist() == pytest.approx([0.1, 0.75, 0.25])
    assert snapshot.remainder_costs.tolist() == pytest.approx([0.0, 0.4])


def test_the_rows_of_a_split_key_stay_where_they_were_seen() -> None:
    snapshot = snapshot_of([batch(rows=(90, 60), keys={4: 100, 6: 20})], Table(2, {4: (0, 1)}))
    assert snapshot.key_hashes.tolist() == [6]
    assert snapshot.loads.tolist() == pytest.approx([0.9, 0.6])


@pytest.mark.parametrize(
    "batches", [[], [batch(rows=(0, 0))], [batch(rows=(0, 0), run_ms=(5, 7))], [batch(epoch=3)]]
)
def test_no_rows_are_no_load(batches: list[ObservedBatch]) -> None:
    snapshot = snapshot_of(batches, Table(2, {4: 1}))
    assert not snapshot.loads.any()
    assert snapshot.key_hashes.tolist() == [4]
    assert snapshot.total_bytes == 0


def test_one_partition_and_one_key() -> None:
    snapshot = snapshot_of([batch(rows=(7,), keys={-3: 7})], Table(1))
    assert snapshot.loads.tolist() == pytest.approx([0.07])
    assert snapshot.costs.tolist() == pytest.approx([0.07])
    assert snapshot.imbalance == 0


def test_a_batch_of_another_number_of_partitions_is_left_out() -> None:
    assert snapshot_of([batch(rows=(1, 2, 3))], Table(2)).batches == ()


def test_a_cost_of_the_users_own_counts_for_the_remainders_too() -> None:
    snapshot = snapshot_of([batch(keys={4: 60, 3: 20})], Table(2), cost=lambda hashes, rows: rows * 3)
    assert snapshot.costs.tolist() == [60, 180]
    assert snapshot.remainder_costs.tolist() == [40 * 3, 30 * 3]


def test_a_cost_function_that_sees_no_keys_leaves_rows_as_the_measure() -> None:
    assert snapshot_of([batch()], Table(2), cost=lambda hashes, rows: rows * 3).loads.tolist() == [100, 50]


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (lambda hashes, rows: rows * np.nan, "returned nan for key hash 3"),
        (lambda hashes, rows: [1.0, -2.0], r"returned -2\.0 for key hash 4"),
        (lambda hashes, rows: rows + np.inf, "returned inf for key hash 3"),
        (lambda hashes, rows: 5, r"returned shape \(\) for 2 keys"),
        (lambda hashes, rows: [1.0], r"returned shape \(1,\) for 2 keys"),
        (lambda hashes, rows: ["a", "b"], "failed: ValueError"),
        (lambda hashes, rows: None, "returned shape"),
        (lambda hashes, rows: 1 / 0, "failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_cost_function_that_returns_nonsense_is_refused_in_words(cost: object, words: str) -> None:
    with pytest.raises(SettingError, match=words) as refusal:
        snapshot_of([batch(keys={4: 60, 3: 20})], Table(2), cost=cost)  # type: ignore[arg-type]
    assert "Give a function of (key_hashes, rows)" in str(refusal.value)


def test_an_observation_whose_arrays_do_not_fit_is_refused() -> None:
    with pytest.raises(SettingError, match="batch 5 was observed with 2 rows, 1 bytes, 2 run times"):
        ObservedBatch(5, 0, 10, [1, 2], [1], [1, 2], [], [])  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="2 key hashes and rows of 1"):
        ObservedBatch(5, 0, 10, [1], [1], [1], [1, 2], [1])  # type: ignore[arg-type]


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[ObservedBatch], Table]:
    """Batches with every oddity: idle partitions, unknown times, sketches that are far off, other epochs."""
    n = draw(st.integers(1, 5))
    hashes = draw(st.lists(st.integers(-40, 40), unique=True, max_size=12))
    entries = draw(st.dictionaries(st.integers(-40, 40), st.integers(0, n - 1), max_size=4))
    splits = {} if n == 1 else draw(st.dictionaries(st.integers(50, 60), st.just((0, n - 1)), max_size=2))
    table = Table(n, entries | splits, epoch=1)
    batches = []
    for number in range(draw(st.integers(0, 4))):
        rows = draw(st.lists(st.integers(0, 1000), min_size=n, max_size=n))
        times = draw(st.lists(st.sampled_from([-1, 0, 1, 40, 3000]), min_size=n, max_size=n))
        keys = {key: draw(st.integers(0, 800)) for key in [*hashes, *splits]}
        epoch = draw(st.sampled_from([1, 1, 1, 0]))
        batches.append(batch(number, tuple(rows), tuple(times), keys, epoch=epoch))
    return batches, table


@given(windows())
def test_the_loads_of_a_snapshot_are_what_each_partition_was_seen_to_cost(
    window: tuple[list[ObservedBatch], Table],
) -> None:
    batches, table = window
    used = [one for one in batches if one.epoch == table.epoch]
    expected = np.zeros(table.partitions)
    for one, rates in zip(used, rates_of(used), strict=True):
        expected += one.rows * rates
    snapshot = snapshot_of(batches, table)
    assert snapshot.loads == pytest.approx(expected)
    assert snapshot.total_bytes == pytest.approx(sum(int(one.bytes.sum()) for one in used))
    assert set(table.move_hashes.tolist()) <= set(snapshot.key_hashes.tolist())


def test_neither_the_fixed_part_of_a_task_nor_a_little_noise_is_load() -> None:
    rng = np.random.default_rng(1)
    rows = np.full(8, 500) + rng.integers(-5, 6, 8)
    noisy = (400 + rows) * rng.uniform(0.85, 1.15, 8)
    level = ObservedBatch(1, 0, 1000, rows, rows, noisy.astype(int), [], [])  # type: ignore[arg-type]
    assert snapshot_of([level], Table(8)).imbalance < 0.02
