"""When the last task ends on the slots there are, against a simulation second by second."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.control.observed import ObservedBatch
from skewless.control.slots import Slots


def _by_ticks(seconds: list[int], counts: list[int], homes: list[int], wait: int) -> int:
    """The same scheduler, written as a loop over time: whoever has been idle for `wait` takes any task."""
    pending, slots, now = list(range(len(seconds))), [], 0
    for executor, count in enumerate(counts):
        slots += [{"executor": executor, "until": 0, "idle": 0, "any": False} for _ in range(count)]
    while pending or any(slot["until"] > now for slot in slots):
        for slot in slots:
            if slot["until"] > now or not pending:
                continue
            slot["any"] = slot["any"] or slot["idle"] >= wait
            own = [p for p in pending if slot["any"] or homes[p] in (-1, slot["executor"])]
            if own:
                pending.remove(own[0])
                slot["until"], slot["idle"] = now + seconds[own[0]], 0
            else:
                slot["idle"] += 1
        now += 1
    return now


@pytest.mark.parametrize("seed", range(40))
def test_the_end_is_the_one_that_a_loop_over_time_finds(seed: int) -> None:
    """With one slot per executor, so that no two slots are free for the same task at the same time."""
    random = np.random.default_rng(seed)
    tasks, executors = int(random.integers(1, 12)), int(random.integers(1, 4))
    seconds = random.integers(1, 9, tasks)
    homes = random.integers(-1, executors, tasks)
    wait = int(random.integers(1, 6))
    found = Slots((1,) * executors, tuple(homes.tolist()), float(wait)).finish(seconds.astype(float))
    assert found == _by_ticks(seconds.tolist(), [1] * executors, homes.tolist(), wait)


def test_more_slots_are_never_slower_where_tasks_have_no_home_and_one_each_is_the_longest() -> None:
    seconds = np.array([5.0, 1.0, 4.0, 2.0, 2.0, 6.0])
    ends = [Slots((count,)).finish(seconds) for count in range(1, 8)]
    assert ends[0] == seconds.sum()
    assert ends[5:] == [6.0, 6.0]
    assert all(end >= max(seconds.max(), seconds.sum() / (i + 1)) for i, end in enumerate(ends))


def _batch(start_ms: list[int], run_ms: list[int], executors: list[int], slots: list[int]) -> ObservedBatch:
    rows = [1] * len(run_ms)
    return ObservedBatch(
        1, 0, 99, rows, rows, run_ms, [], [], start_ms=start_ms, executors=executors, slots=slots
    )  # type: ignore[arg-type]


def test_slots_that_others_hold_do_not_count() -> None:
    """Four tasks on an executor of two slots, one after the other: another query had the second slot."""
    alone = _batch([0, 100, 200, 300], [90, 90, 90, 90], [0, 0, 0, 0], [2])
    assert Slots.of(alone).counts == (1,)
    both = _batch([0, 0, 100, 100], [90, 90, 90, 90], [0, 0, 0, 0], [2])
    assert Slots.of(both).counts == (2,)


def test_an_executor_whose_tasks_did_not_wait_has_all_its_slots() -> None:
    assert Slots.of(_batch([0, 5], [90, 90], [0, 1], [4, 4])).counts == (4, 4)


def test_without_any_executor_each_partition_has_a_slot() -> None:
    assert Slots.of(_batch([0, 5], [90, 90], [-1, -1], [])).counts == (2,)
    assert Slots.of(_batch([0, 5], [90, 90], [-1, -1], [0])).counts == (2,)
