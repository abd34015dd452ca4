from __future__ import annotations

import numpy as np
import pytest

from skewless.model.placement import Flows, Nodes, PlacementLimits
from skewless.policies import groups
from skewless.simulate.placements import Period, replay


def test_a_plan_is_made_from_one_period_and_judged_by_the_next() -> None:
    first = Period(np.array([30.0, 20.0, 10.0]), np.ones(3), Flows.none())
    second = Period(np.array([10.0, 20.0, 30.0]), np.ones(3), Flows.none())
    [step] = replay(
        [first, second],
        groups.get("greedy"),
        Nodes.of(["a", "b"]),
        np.zeros(3, int),
        PlacementLimits(max_bytes=1),
    )
    assert (step.before, step.planned, step.moves) == (30, 0, 1)
    assert step.realised == pytest.approx(20)  # the group that was 30 left, and is 10 now


def test_flows_between_nodes_cost_load_at_both_ends_and_flows_within_one_cost_none() -> None:
    period = Period(np.array([10.0, 10.0]), np.ones(2), Flows.of([0], [1], [10.0]))

    def together(placement: object, limits: object) -> object:
        return groups.settle(placement, PlacementLimits(), np.array([0, 0]), 0.0, allowed=100)  # type: ignore[arg-type]

    [step] = replay(
        [period] * 2,
        together,
        Nodes.of(["a", "b"]),
        np.array([0, 1]),
        PlacementLimits(),
        remote_cost=0.5,  # type: ignore[arg-type]
    )
    assert (step.collocation, step.load_index) == (1, 20 / 30)
