"""Splits of a join: their bounds over many instances, and the widths of worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.operators.hot_keys import KeyRows, SideRows, Sketch, candidates
from skewless.operators.plan_splits import plan_splits

SIDES = [("left",), ("right",), ("left", "right")]


def key(
    number: int, left: float, right: float, n: int, can_match: bool = True, kinds: int | None = None
) -> KeyRows:
    hashed = tuple((number * 7 + slot * 13 + slot // n) % n for slot in range(candidates(n)))
    return KeyRows(
        number, f"k{number}", SideRows(left, left, kinds), SideRows(right, right, kinds), can_match, hashed
    )


def of(*keys: KeyRows, left: float = 0, right: float = 0) -> Sketch:
    """A sketch with so many further rows, each of a key of its own."""
    return Sketch(
        left + sum(k.left.rows for k in keys),
        right + sum(k.right.rows for k in keys),
        left + sum(k.left.rows * k.right.rows for k in keys if k.can_match),
        keys,
    )


@st.composite
def sketches(draw: st.DrawFn) -> tuple[Sketch, int]:
    n = draw(st.integers(2, 16))
    rows = st.integers(0, 1000)
    keys = [
        key(i, draw(rows), draw(rows), n, draw(st.booleans()), draw(st.none() | st.integers(0, 9)))
        for i in range(draw(st.integers(0, 6)))
    ]
    return of(*keys, left=draw(rows), right=draw(rows)), n


@given(sketches(), st.sampled_from(SIDES), st.floats(0, 3), st.booleans(), st.booleans())
def test_splits_keep_to_their_bounds(
    instance: tuple[Sketch, int], sides: tuple[str, ...], most: float, pairs: bool, hot: bool
) -> None:
    sketch, n = instance
    planned = plan_splits(sketch, sides, n, most, pairs, hot)
    by_hash = {k.key_hash: k for k in sketch.keys}
    copies = {"left": 0.0, "right": 0.0}
    for split in planned.splits:
        found = by_hash[split.key_hash]
        own, other = (found.left, found.right) if split.side == "left" else (found.right, found.left)
        targets = [found.partitions[slot - 1] for slot in split.slots]
        assert split.side in sides
        assert 2 <= len(set(targets)) == len(targets) <= n
        assert own.kinds is None or split.width <= own.kinds
        copies[split.side] += (split.width - 1) * other.rows * found.can_match
    assert copies["left"] <= most * sketch.right_rows + 1e-6
    assert copies["right"] <= most * sketch.left_rows + 1e-6
    assert planned == plan_splits(sketch, sides, n, most, pairs, hot)


def test_a_key_with_most_rows_is_dealt_over_all_partitions() -> None:
    planned = plan_splits(of(key(1, 600, 1, 8), left=400, right=100), ["left"], 8, 1.0, True, False)
    assert [(s.side, s.width, s.copies) for s in planned.splits] == [("left", 8, 7.0)]


def test_light_keys_stay_whole_unless_they_are_given() -> None:
    light = of(key(1, 20, 1, 8), left=980, right=100)
    assert not plan_splits(light, ["left"], 8, 1.0, True, False).splits
    assert [s.width for s in plan_splits(light, ["left"], 8, 1.0, True, True).splits] == [8]


def test_an_inner_join_splits_each_key_on_the_side_that_has_more_of_it() -> None:
    both = of(key(1, 600, 2, 8), key(2, 2, 600, 8), left=400, right=400)
    sides = {s.name: s.side for s in plan_splits(both, ["left", "right"], 8, 1.0, True, False).splits}
    assert sides == {"k1": "left", "k2": "right"}


@pytest.mark.parametrize(("most", "width"), [(1.0, 8), (0.35, 4), (0.1, 2), (0.09, 0), (0.0, 0)])
def test_max_replication_narrows_a_split_and_then_forbids_it(most: float, width: int) -> None:
    planned = plan_splits(of(key(1, 6000, 10, 8), left=400, right=90), ["left"], 8, most, True, False)
    assert [s.width for s in planned.splits] == ([width] if width else [])
    assert width or "max_replication" in planned.why_not[0]


def test_a_key_that_cannot_match_costs_no_copies() -> None:
    nulls = of(key(1, 600, 500, 8, can_match=False), left=400, right=100)
    assert [(s.width, s.copies) for s in plan_splits(nulls, ["left"], 8, 0.0, True, False).splits] == [
        (8, 0.0)
    ]


def test_rows_that_are_all_alike_are_not_split() -> None:
    alike = of(key(1, 600, 1, 8, kinds=1), left=400, right=100)
    planned = plan_splits(alike, ["left"], 8, 1.0, True, False)
    assert not planned.splits
    assert "kinds" in planned.why_not[0]


def test_a_key_of_the_side_that_must_be_copied_stays_whole() -> None:
    wrong = of(key(1, 1, 600, 8), left=100, right=400)
    planned = plan_splits(wrong, ["left"], 8, 9.0, False, False)
    assert not planned.splits
    assert "must copy" in planned.why_not[0]
