"""The model of load against the table itself, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.model.snapshot import Snapshot
from skewless.model.split import Split
from skewless.model.spread import Spread
from skewless.model.table import Table


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Tables of moves, left splits, right splits and grids."""
    n = draw(st.integers(1, 9))
    entries: dict[int, int | Split] = {}
    for key_hash in draw(st.lists(st.integers(-6, 6), unique=True, max_size=6)):
        rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        if rows * columns <= n:
            targets = draw(st.permutations(range(n)))[: rows * columns]
            entries[key_hash] = Split(tuple(targets), rows)
    return Table(n, entries)


@given(tables(), st.data())
@settings(deadline=None)
def test_loads_are_those_of_rows_that_are_spread_one_by_one(table: Table, data: st.DataObject) -> None:
    """As many rows on either side as every grid divides, so that the choices come out even."""
    hashes = data.draw(st.lists(st.integers(-6, 6), unique=True, max_size=8))
    counts = [data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in hashes]
    loads = np.zeros(table.partitions)
    for key_hash, (left, right) in zip(hashes, counts, strict=True):
        split = table.split_of(key_hash) or Split(table.targets(key_hash))
        grid = np.reshape(split.targets, (split.left_width, split.right_width))
        for row in range(6 * left):
            loads[grid[row % split.left_width]] += 1
        for row in range(6 * right):
            loads[grid[:, row % split.right_width]] += 1
    amounts = 6.0 * np.array(counts, dtype=float).reshape(-1, 2)
    assert Spread.under(table, hashes).loads(amounts[:, 0], amounts[:, 1]) == pytest.approx(loads)


def test_rows_of_a_left_split_lie_where_the_table_routes_them() -> None:
    table = Table(8, {5: (0, 3, 6), 9: 2})
    rows = np.full(3000, 5, dtype=np.int32)
    contents = np.arange(3000, dtype=np.int32)
    routed = np.bincount(table.route(rows, contents=contents), minlength=8)
    expected = Spread.under(table, [5]).loads(np.array([3000.0]), np.array([0.0]))
    assert np.flatnonzero(expected).tolist() == np.flatnonzero(routed).tolist()
    assert routed == pytest.approx(expected, abs=150), "by content the rows come out even but for chance"


def test_a_snapshot_counts_replicas_in_its_loads_and_rows_once_in_its_costs() -> None:
    table = Table(4, {5: Split.grid([[0, 1], [2, 3]]), 6: Split.right(0, 3)})
    snapshot = Snapshot.of(
        table, [5, 6, 7], [8.0, 10.0, 1.0], [80, 100, 10], sides="either", right_shares=[0.5, 0.8, 0.0]
    )
    assert snapshot.loads.tolist() == [4 + 2 + 4, 4, 4, 4 + 2 + 4 + 1]
    assert snapshot.remainder_bytes.tolist() == [40 + 20 + 40, 40, 40, 40 + 20 + 40]
    assert snapshot.split_costs.tolist() == [8, 10]
    assert snapshot.loads_under(table, Table(4)).tolist() == [0, 8, 10, 1]


def test_two_keys_of_one_hash_have_the_sides_of_both() -> None:
    snapshot = Snapshot.of(Table(4), [5, 5], [6.0, 2.0], sides="left", right_shares=[0.0, 1.0])
    assert snapshot.right_shares == pytest.approx([0.25])
