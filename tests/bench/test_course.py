"""The courses of the evidence pages on Mixed: the change they promise, and what replaying them tells, by
hand."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench"))

from pages.mixed_course import Course, Fluctuation, replay, zipf_course
from skewless.policies import Limits


@pytest.mark.parametrize(
    ("fluctuation", "f"), [("falls", 0.2), ("falls", 2.0), ("rises", 0.4), ("stirred", 0.2)]
)
def test_some_workers_load_changes_by_the_rate_and_frequencies_only_change_places(
    fluctuation: Fluctuation, f: float
) -> None:
    course = zipf_course(6, fluctuation, keys=5000, f=f, workers=5)
    home = course.hashes.astype(np.int64) % 5
    for before, after in itertools.pairwise(course.loads):
        assert np.sort(before) == pytest.approx(np.sort(after))
        old, new = (np.bincount(home, weights=load, minlength=5) for load in (before, after))
        changes = (new - old) / new
        reached = {"falls": -changes.min(), "rises": changes.max(), "stirred": np.abs(changes).max()}
        assert reached[fluctuation] >= f - 1e-9


def test_between_two_changes_nothing_changes() -> None:
    loads = zipf_course(6, keys=1000, f=0.5, workers=5, every=3).loads
    same = [bool(np.array_equal(before, after)) for before, after in itertools.pairwise(loads)]
    assert same == [True, True, False, True, True]


COURSE = Course.of(
    np.array([0, 2, 4], dtype=np.int32),
    [np.array(load, dtype=float) for load in ([2, 1, 1], [2, 1, 1], [1, 1, 2])],
)


@pytest.mark.parametrize(
    ("options", "realised"),
    [
        ({}, [1.0, 1.5]),  # 2 | 1 1 is level, until the last key doubles: 1 | 1 2
        ({"ahead": 1}, [1.0, 1.0]),
        ({"late": 1}, [2.0, 1.5]),  # the first plan comes too late for the second interval, which is hashed
    ],
)
def test_a_plan_is_judged_by_the_interval_that_it_routes(
    options: dict[str, int], realised: list[float]
) -> None:
    steps = replay(COURSE, "mixed", Limits(max_imbalance=0.0), 2, **options)  # type: ignore[arg-type]
    assert [step.realised for step in steps] == realised


def test_what_moved_is_a_share_of_the_state_of_the_window() -> None:
    for window, share in ((1, 0.5), (2, 0.5)):
        [first, second] = replay(COURSE, "mixed", Limits(max_imbalance=0.0), 2, window=window)
        assert first.moved == share
        assert second.moved == 0
        assert second.plan is None


def test_memory_counts_older_intervals_less() -> None:
    """Costs 2 1 1, 2 1 1, 1 1 2 with half the weight each: 2.5 1.75 2.75 before the last interval counts for
    all."""
    course = Course(COURSE.hashes, [*COURSE.loads, COURSE.loads[-1]])
    plans = [
        step.plan for step in replay(course, "simple", Limits(max_imbalance=0.0), 2, memory=3, decay=0.5)
    ]
    assert plans[-1] is not None
    assert plans[-1].imbalance_before == pytest.approx((1.75 + 2.75) / 3.5 - 1)
