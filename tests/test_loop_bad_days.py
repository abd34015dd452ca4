"""Bad input and bad days, seen from the loop: nothing is published for nothing, the reason is told, the query runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fake_gateway import SKEWED, FakeQuery
from test_loop import EAGER, Scene


def test_a_stream_that_starts_without_rows_is_levelled_once_there_are_some() -> None:
    scene = Scene()
    record = scene.see({}, 20)
    assert scene.gateway.calls == 0
    assert record.why.startswith("idle")
    scene.see(SKEWED, 3)
    assert scene.gateway.calls == 1


def test_one_key_alone_stays_where_it_is_and_is_named() -> None:
    scene = Scene()
    record = scene.see({4: 100}, 20)
    assert scene.gateway.calls == 0
    assert "split: key hash 4 carries 2.00 times the mean; only a split can level it" in record.why
    assert not record.errors


def test_one_partition_leaves_nothing_to_do() -> None:
    scene = Scene(FakeQuery(partitions=1))
    record = scene.see(SKEWED, 20)
    assert scene.gateway.calls == 0
    assert record.why.startswith("level: imbalance 0.000")
    assert not record.errors


def test_equal_keys_are_halved_once_and_then_left_alone() -> None:
    scene = Scene()
    equal = dict.fromkeys(range(0, 40, 2), 5)  # all at home in partition 0
    record = scene.see(equal, 20)
    assert scene.gateway.calls == 1
    assert len(scene.query.pins[0][1]) == 10
    assert record.why.startswith(("level: imbalance 0.000", "standing down: level, and every one of 10 entries is needed"))


def test_a_key_heavier_than_a_fair_share_gets_a_partition_to_itself_and_does_not_wander() -> None:
    scene = Scene()
    giant = {0: 90, 2: 20, 4: 20, 1: 10}
    record = scene.see(giant, 30)
    assert scene.gateway.calls == 1
    assert set(scene.query.pins[0][1].move_hashes.tolist()) == {2, 4}
    assert "split: key hash 0 carries 1.29 times the mean; only a split can level it" in record.why


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (lambda hashes, rows: rows * np.nan, "SettingError: the cost function returned nan for key hash 0"),
        (lambda hashes, rows: np.full(len(rows), -1), "SettingError: the cost function returned -1.0 for key hash 0"),
        (lambda hashes, rows: rows[:1], "SettingError: the cost function returned shape (1,) for 4 keys"),
        (lambda hashes, rows: rows / "a", "SettingError: the cost function failed: "),
    ],
)
def test_a_cost_function_gone_wrong_changes_nothing_until_it_is_right_again(cost: Callable[..., Any], words: str) -> None:
    broken = [True]
    scene = Scene(settings=replace(EAGER, cost=lambda hashes, rows: cost(hashes, rows) if broken[0] else rows))
    record = scene.see(SKEWED, 5)
    assert scene.gateway.calls == 0
    [(told, times)] = record.errors.items()
    assert told.startswith(words)
    assert times == 5
    assert record.why.startswith("error: SettingError: the cost function")
    broken[0] = False
    scene.see(SKEWED)
    assert scene.gateway.calls == 1
