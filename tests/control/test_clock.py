"""The model of time, on batches whose times are known."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.control.clock import Clock, Timekeeper
from skewless.control.controller import Controller
from skewless.control.observed import Int64s, ObservedBatch
from skewless.control.pace import Pace
from skewless.control.slots import Slots
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table


def _batch(number: int, rows: Int64s, slots: int, noise: float = 0.0) -> ObservedBatch:
    """200 ms outside the tasks, 50 ms for a task, 2 ms per row; tasks in order on the slots."""
    random = np.random.default_rng(number)
    run_ms = ((50 + 2 * rows) * (1 + noise * random.standard_normal(len(rows)))).astype(np.int64)
    free, starts = np.zeros(slots), np.zeros(len(rows), dtype=np.int64)
    for task, took in enumerate(run_ms):
        slot = int(free.argmin())
        starts[task], free[slot] = int(free[slot]), free[slot] + took
    return ObservedBatch(
        number, 0, int(200 + free.max()), rows, rows, run_ms, [], [],
        start_ms=starts, executors=np.zeros(len(rows)), slots=[slots],
    )  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(("partitions", "slots"), [(8, 8), (32, 8), (200, 8), (10, 8)])
def test_predicted_times_come_near_the_real_ones_whatever_the_rows(partitions: int, slots: int) -> None:
    random, times = np.random.default_rng(7), Timekeeper()
    errors = []
    for number in range(20):
        rows = random.zipf(1.6, partitions).clip(1, 50) * 20
        batch = _batch(number, rows, slots, noise=0.02)
        predicted = times.predict_ms(batch)
        if predicted is not None and number > 2:
            errors.append(abs(predicted - batch.batch_ms) / batch.batch_ms)
        times.learn(batch)
    assert np.median(errors) < 0.05


def test_a_first_batch_that_starts_workers_is_forgotten() -> None:
    times, rows = Timekeeper(), np.array([100, 100])
    slow = _batch(0, rows, 2)
    times.learn(ObservedBatch(0, 0, 90_000, rows, rows, slow.run_ms * 30, [], []))  # type: ignore[arg-type]
    times.learn(_batch(1, rows, 2))
    assert times.predict_ms(_batch(2, rows, 2)) == pytest.approx(450, rel=0.02)


def test_what_a_swap_saved_is_by_the_batchs_own_times() -> None:
    times, level, skewed = Timekeeper(), np.array([100, 100, 100, 100]), np.array([200, 100, 50, 50])
    for number in range(3):
        times.learn(_batch(number, skewed, 4))
    rows = level + 20 * np.arange(4)
    fast = ObservedBatch(4, 1, 100, rows, rows, (50 + 2 * rows) // 10, [], [])  # type: ignore[arg-type]
    assert times.saved_ms(fast, skewed) == pytest.approx(2 * (200 - 160) / 10, abs=1)


def test_skew_that_the_scheduler_levels_is_no_imbalance() -> None:
    """32 partitions on 8 slots, one with three times the mean: the batch ends no later for it."""
    work = np.full(32, 1.0)
    work[5] = 3.0
    assert Clock(Slots((32,))).lost(work) > 1.5
    assert Clock(Slots((8,))).lost(work) <= 0.2
    work[31] = 3.0  # started last: nothing is left to fill its time with
    assert Clock(Slots((8,))).lost(work) > 0.3


def test_a_controller_swaps_by_time_and_not_by_the_heaviest_partition() -> None:
    table = Table(32)
    hashes = np.arange(64)
    costs = np.ones(64)
    costs[[5, 37]] = 3.0  # partition 5 has three times the mean
    snapshot = Snapshot.of(table, hashes, costs, batches=(1,))
    pace = Pace(patience=1)
    many = Controller(table, pace=pace).observe(snapshot, clock=Clock.one_slot_each(32))
    few = Controller(table, pace=pace, limits=None).observe(snapshot, clock=Clock(Slots((8,))))
    assert many.action == "swap"
    assert few.why.startswith(
        "waiting" if few.action == "stay" and "waiting" in few.why else ("gain", "level")
    )
    if few.action == "swap":  # it moves less than what levels every partition, and ends as soon
        assert few.plan is not None
        assert many.plan is not None
        assert few.plan.bytes_moved <= many.plan.bytes_moved
        assert few.predicted < few.before


def test_no_swap_where_it_would_end_no_sooner() -> None:
    table = Table(32)
    costs = np.ones(64)
    costs[[0, 32]] = 2.0  # partition 0 has twice the mean, and the empty partition 1 makes room for it
    costs[[1, 33]] = 0.0
    snapshot = Snapshot.of(table, np.arange(64), costs, batches=(1,))
    few = Controller(table, pace=Pace(patience=1)).observe(snapshot, clock=Clock(Slots((8,))))
    assert few.action == "stay"
    assert Controller(table, pace=Pace(patience=1)).observe(snapshot).action == "swap"
