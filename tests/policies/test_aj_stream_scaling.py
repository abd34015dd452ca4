"""Feedback-based scaling of Aj-Stream: who lags, what is asked for, and what never is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import SettingError
from skewless.policies.scaling.aj_stream import aj_stream

AMOUNTS = st.lists(st.tuples(*[st.floats(0, 1e6, allow_subnormal=False)] * 3), max_size=12)


def test_no_executor_is_asked_for_while_no_instance_lags() -> None:
    plan = aj_stream([0.2, 0.2, 0.2], [10, 500, 10], [1, 1, 1], total=100)
    assert plan.executors == 0
    assert plan.lagging == ()


def test_lambda_is_the_excess_over_the_mean_rate_and_capped() -> None:
    """Equation 17 by hand: rates 10, 10, 40 have mean 20, so lambda is -0.5, -0.5 and 1."""
    plan = aj_stream([1, 1, 9], [10, 10, 40], [1, 1, 1], total=100, most=0.75, unit=4)
    assert plan.changes.tolist() == [-2.0, -2.0, 3.0]
    assert plan.spare == 4.0


def test_a_lagging_instance_that_is_sent_no_more_than_others_gets_none() -> None:
    plan = aj_stream([1, 9], [10, 10], [1, 1], total=100)
    assert plan.lagging == (1,)
    assert plan.executors == 0
    assert "would not help" in plan.why


def test_no_more_is_asked_for_than_is_available() -> None:
    plan = aj_stream([1, 9], [0, 100], [4, 4], total=10, unit=50, executor_units=2)
    assert plan.executors == 1


@given(AMOUNTS, st.floats(0, 100))
def test_whatever_is_measured_the_plan_keeps_to_the_cluster(
    rows: list[tuple[float, ...]], total: float
) -> None:
    late, rate, held = np.array(rows).reshape(-1, 3).T
    plan = aj_stream(late, rate, held, total)
    assert 0 <= plan.executors <= max(0.0, total - held.sum()) + 1e-6
    assert np.isfinite(plan.changes).all()
    assert (plan.changes <= 1.0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"latencies": [1.0, float("nan")]}, "latencies hold nan"),
        ({"rates": [1.0]}, "Give one number of each per instance"),
        ({"allocated": [1.0, -1.0]}, "allocated hold -1.0"),
        ({"theta": 1.0}, "theta is 1.0"),
        ({"executor_units": 0.0}, "executor_units is 0.0"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], words: str) -> None:
    settings = {"latencies": [1.0, 2.0], "rates": [1.0, 2.0], "allocated": [1.0, 1.0], "total": 9.0, **change}
    with pytest.raises(SettingError, match=words):
        aj_stream(**settings)  # type: ignore[arg-type]
