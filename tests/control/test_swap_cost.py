from __future__ import annotations

import pytest

from skewless.control.swap_cost import SwapCost
from skewless.model.plan import Moves, Plan
from skewless.model.table import Table


def plan(sources: list[int], state_bytes: list[float]) -> Plan:
    count = len(sources)
    moves = Moves.of(list(range(count)), sources, [9] * count, state_bytes)
    return Plan(Table(10), moves, 0.5, 0.0, seconds=0.0, met=True)


def test_a_plan_that_takes_from_few_partitions_is_cheaper() -> None:
    cost = SwapCost(seconds_per_giver=1.0, seconds_per_byte=0.01)
    assert cost.guess(plan([1, 1, 1], [10, 10, 10])) == pytest.approx(1.3)
    assert cost.guess(plan([1, 2, 3], [10, 10, 10])) == pytest.approx(3.3)


def test_the_guess_approaches_what_is_measured() -> None:
    cost, swap = SwapCost(seconds_per_giver=1.0, seconds_per_byte=0.0), plan([1], [0])
    for _ in range(20):
        cost.learn(swap, seconds=5.0)
    assert cost.guess(swap) == pytest.approx(5.0, rel=1e-3)


def test_a_plan_without_moves_teaches_nothing() -> None:
    cost = SwapCost()
    cost.learn(plan([], []), seconds=5.0)
    assert cost.scale == 1.0
