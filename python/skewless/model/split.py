"""A split: how the rows of one key are spread over several partitions, in a join or without one.

Separate from the table because a split is a value that users write and policies plan; a table stores many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skewless.errors import TableError

Int32s = NDArray[np.int32]


@dataclass(frozen=True)
class Split:
    """Distinct partitions in a grid of `rows` rows, row by row.

    In a join a row of the left side takes one row of the grid and goes to each of its partitions; a row of
    the right side takes one column and goes to each of its. Every pair of rows so meets in exactly one
    partition. With one column the left side is split and the right side copied, which is the default; with
    one row it is the other way round. Outside joins only one column makes sense: each row goes to one target.

    >>> Split.grid([[0, 1, 2], [3, 4, 5]])
    Split(targets=(0, 1, 2, 3, 4, 5), rows=2)
    >>> Split.left(0, 3, 5).left_width, Split.left(0, 3, 5).right_width
    (3, 1)
    >>> Split.right(0, 3, 5).left_width, Split.right(0, 3, 5).right_width
    (1, 3)
    """

    targets: tuple[int, ...]
    rows: int = 0

    def __post_init__(self) -> None:
        targets = _whole(self.targets)
        object.__setattr__(self, "targets", targets)
        if not targets:
            raise TableError("a split has no target. Give it at least one partition.")
        if isinstance(self.rows, bool) or not isinstance(self.rows, (int, np.integer)):
            raise TableError(f"a split has {self.rows!r} rows. Give a whole number.")
        object.__setattr__(self, "rows", int(self.rows) or len(targets))
        if self.rows < 1 or len(targets) % self.rows:
            raise TableError(
                f"{self.rows} rows do not divide {len(targets)} targets: the grid would have holes. Give "
                "each row as many targets."
            )
        if len(set(targets)) != len(targets):
            raise TableError(f"the split {targets} lists one target twice. List each target once.")

    @classmethod
    def left(cls, *targets: int) -> Split:
        """Left rows go to one of the targets each, right rows to all of them."""
        return cls(targets, len(targets))

    @classmethod
    def right(cls, *targets: int) -> Split:
        """Right rows go to one of the targets each, left rows to all of them."""
        return cls(targets, 1)

    @classmethod
    def grid(cls, rows: Sequence[Sequence[int]]) -> Split:
        """Left rows go to all targets of one row, right rows to all of one column."""
        if len({len(row) for row in rows}) > 1:
            raise TableError(f"the rows of {rows} differ in length. Give each row as many targets.")
        return cls(tuple(target for row in rows for target in row), len(rows))

    @property
    def left_width(self) -> int:
        """Among how many places a left row chooses one: the rows of the grid."""
        return self.rows

    @property
    def right_width(self) -> int:
        """Among how many places a right row chooses one: the columns of the grid."""
        return len(self.targets) // self.rows

    @property
    def side(self) -> str:
        """Which side's rows are dealt out: "left", "right", "both", or "" of a single target.

        >>> Split.left(0, 1).side, Split.right(0, 1).side, Split.grid([[0, 1], [2, 3]]).side
        ('left', 'right', 'both')
        """
        if self.left_width > 1:
            return "both" if self.right_width > 1 else "left"
        return "right" if self.right_width > 1 else ""

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, at: int) -> int:
        return self.targets[at]

    def __iter__(self) -> Iterator[int]:
        return iter(self.targets)


def slot(
    key_hashes: Int32s, map_partition: int, mappers: int, widths: Int32s, contents: Int32s | None
) -> Int32s:
    """Which of its `widths` targets a row of a split key takes: a function of key, map partition and content
    alone, so that a retried task writes every row where the first attempt did. With at least as many mappers
    as targets the mappers take turns; with fewer, the row's content decides (None: it may not, and the
    mappers take turns all the same)."""
    turn = ((_mix(key_hashes) & np.uint32(0x7FFFFFFF)).astype(np.int64) + map_partition) % widths
    if contents is None:
        return turn.astype(np.int32)
    seed = np.uint32((0x9E3779B9 * (map_partition + 1)) & 0xFFFFFFFF)
    mixed = _mix(key_hashes.astype(np.uint32) ^ _mix(contents.astype(np.uint32) + seed))
    by_content = (mixed & np.uint32(0x7FFFFFFF)).astype(np.int64) % widths
    return np.where(mappers >= widths, turn, by_content).astype(np.int32)


def _mix(values: NDArray[np.generic]) -> NDArray[np.uint32]:
    """Murmur3's 32-bit finaliser: every input bit reaches every output bit."""
    x = values.astype(np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def _whole(targets: object) -> tuple[int, ...]:
    values = tuple(targets) if isinstance(targets, (Sequence, np.ndarray)) else (targets,)
    if isinstance(targets, str) or any(
        isinstance(value, bool) or not isinstance(value, (int, np.integer)) for value in values
    ):
        raise TableError(f"a split leads to {targets!r}. Give partitions, whole numbers from 0.")
    return tuple(int(value) for value in values)
