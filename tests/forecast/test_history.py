"""The memory of windows: what comes and goes, what is no share, and nights without data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.errors import SettingError
from skewless.forecast import History, Memory


@given(st.lists(st.dictionaries(st.integers(-9, 9), st.floats(0, 0.1), max_size=8), max_size=12))
@settings(max_examples=80, deadline=None)
def test_with_room_enough_the_memory_is_the_plain_table_of_windows(windows: list[dict[int, float]]) -> None:
    memory = Memory(keys=50)
    for window in windows:
        memory.add(list(window), list(window.values()))
    history, seen = memory.history, [window for window in windows if any(window.values())]
    assert history.windows == len(seen)
    for row, window in zip(history.shares, seen, strict=True):
        real = {k: s for k, s in zip(history.key_hashes.tolist(), row.tolist(), strict=True) if s}
        assert real == {key: share for key, share in window.items() if share}


def test_a_key_that_appears_takes_the_place_of_the_coldest_and_one_that_vanishes_cools() -> None:
    memory = Memory(keys=2)
    for _ in range(5):
        memory.add([1, 2], [0.5, 0.1])
    for _ in range(30):
        memory.add([3, 2], [0.4, 0.1])
    assert memory.history.key_hashes.tolist() == [2, 3]
    assert memory.history.shares[0].tolist() == [0.1, 0.0]


def test_a_thousand_windows_without_data_change_nothing() -> None:
    memory = Memory()
    memory.add([1, 2], [0.5, 0.1])
    before = memory.history
    for _ in range(1000):
        memory.add([], [])
        memory.add([1, 2], [0.0, 0.0])
    assert np.array_equal(memory.history.shares, before.shares)


def test_the_memory_is_bounded() -> None:
    memory = Memory(keys=10, windows=20)
    for window in range(100):
        memory.add(np.arange(50) + 7 * window, np.full(50, 0.01))
    assert memory.history.shares.shape == (20, 10)


def test_what_is_no_share_counts_as_none() -> None:
    memory = Memory()
    memory.add([1, 2, 3, 4], [float("nan"), float("inf"), -0.5, 0.25])
    assert memory.history.shares[0].tolist() == [0.0, 0.0, 0.0, 0.25]


def test_shares_that_add_up_to_more_than_one_are_scaled_down() -> None:
    memory = Memory()
    memory.add([1, 2], [0.9, 0.9])
    assert memory.history.shares[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("hashes", "shares", "words"),
    [
        ([1], [[float("nan")]], "shares hold nan"),
        ([1], [[1.5]], "shares hold 1.5"),
        ([1, 2], [[0.5]], "one share per key"),
        ([1, 1], [[0.5, 0.1]], "comes twice"),
    ],
)
def test_a_history_of_what_is_no_share_is_refused(
    hashes: list[int], shares: list[list[float]], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        History.of(hashes, shares)
