from __future__ import annotations

import pytest

from skewless.errors import PolicyError
from skewless.model.plan import Moves, Plan
from skewless.model.table import Table


def test_a_plan_adds_up_its_bytes_and_names_each_giver_once() -> None:
    moves = Moves.of([1, 2, 3], sources=[4, 0, 4], targets=[1, 1, 2], state_bytes=[10, 20, 30])
    plan = Plan(Table(5, {1: 2}), moves, 0.4, 0.1, seconds=0.0, met=True)
    assert plan.bytes_moved == 60
    assert plan.giving_partitions == (0, 4)
    assert plan.changes


def test_a_plan_without_moves_changes_nothing() -> None:
    plan = Plan(Table(5), Moves.none(), 0.4, 0.4, seconds=0.0, met=False, reasons=("split: one key",))
    assert (plan.changes, plan.bytes_moved, plan.giving_partitions) == (False, 0.0, ())


def test_moves_cannot_be_changed() -> None:
    moves = Moves.of([1], [0], [1], [10])
    with pytest.raises(ValueError, match="read-only"):
        moves.targets[0] = 3


def test_moves_of_unequal_length_are_refused() -> None:
    with pytest.raises(PolicyError, match="differ in length"):
        Moves.of([1, 2], [0], [1], [10])


def test_a_move_to_the_same_partition_is_refused() -> None:
    with pytest.raises(PolicyError, match="to itself"):
        Moves.of([1], [2], [2], [10])
