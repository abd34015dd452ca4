"""A split alone: its shapes and its rules, and how a table keeps it."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from skewless import Change, Split, Table, diff
from skewless.errors import TableError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Split((1, 2, 3), 2), "would have holes"),
        (lambda: Split((1, 2), -1), "would have holes"),
        (lambda: Split((1, 2), 3), "would have holes"),
        (lambda: Split((1, 2), True), "rows. Give a whole number"),
        (lambda: Split((1, 2), 1.0), "rows. Give a whole number"),  # type: ignore[arg-type]
        (lambda: Split.grid([[0, 1], [2]]), "differ in length"),
        (lambda: Split.grid([[0, 1], [1, 2]]), "one target twice"),
        (lambda: Split.grid([]), "no target"),
        (Split.left, "no target"),
        (lambda: Split.right(0, True), "whole numbers"),
        (lambda: Split("12"), "whole numbers"),  # type: ignore[arg-type]
        (lambda: Table(4, {7: Split.right(0, 4)}), "target 4 is not a partition"),
        (lambda: Table(2, {7: Split.right(0, 1, 2)}), "target 2 is not a partition"),
    ],
)
def test_a_split_that_breaks_a_rule_is_refused(make: object, message: str) -> None:
    with pytest.raises(TableError, match=message):
        make()  # type: ignore[operator]


def test_a_left_split_is_what_a_list_of_targets_is() -> None:
    assert Table(8, {5: Split.left(3, 1)}) == Table(8, {5: (3, 1)}) == Table(8, {5: Split((3, 1))})
    assert Table(8, {5: Split.right(3)}) == Table(8, {5: 3})


def test_the_shape_of_a_grid_is_part_of_a_table() -> None:
    cells = range(6)
    tables = [Table(8, {5: Split(tuple(cells), rows)}) for rows in (1, 2, 3, 6)]
    assert len({table.digest for table in tables}) == 4
    for table, rows in zip(tables, (1, 2, 3, 6), strict=True):
        split = Table.decode(table.encode()).split_of(5)
        assert split is not None
        assert (split.left_width, split.right_width) == (rows, 6 // rows)
        assert table.targets(5) == tuple(cells)


def test_a_diff_sees_a_new_shape_and_can_be_applied() -> None:
    left, right = Table(8, {5: (0, 1)}), Table(8, {5: Split.right(0, 1)})
    assert diff(left, right) == [Change(5, (0, 1), Split.right(0, 1))]
    assert left.updated(diff(left, right)) == right
    assert right.updated(diff(right, left)) == left


def test_tables_without_columns_keep_the_bytes_of_format_one() -> None:
    assert struct.unpack_from("<I", Table(8, {5: Split.left(0, 1)}).encode(), 4) == (1,)
    assert struct.unpack_from("<I", Table(8, {5: Split.right(0, 1)}).encode(), 4) == (2,)


def test_rows_of_a_key_with_columns_have_no_single_route() -> None:
    table = Table(8, {5: Split.right(0, 1), 6: (2, 3)})
    assert table.route([6, 7]).tolist() == [2, 7]
    with pytest.raises(TableError, match="goes to several"):
        table.route([7, 5])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (0, "would have holes"),
        (4, "would have holes"),
        (-3, "would have holes"),
        (6, "no split with columns"),
    ],
)
def test_bytes_of_a_grid_with_holes_are_refused(rows: int, message: str) -> None:
    body = struct.pack("<qiiii", 1, 8, 0, 1, 6) + np.array([5, 6, *range(6), rows], "<i4").tobytes()
    header = struct.pack("<4sIQ32s", b"SKWL", 2, len(body), hashlib.sha256(body).digest())
    with pytest.raises(TableError, match=message):
        Table.decode(header + body)
