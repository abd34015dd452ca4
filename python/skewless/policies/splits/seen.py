"""What a split policy sees: the keys of a join, what they cost on each side, and how wide they are now.

Separate from the snapshot because a width is a matter of shares, whatever the table: split keys and whole
ones stand here side by side, each row counted once.

>>> table = Table(4, {4: (0, 1)})
>>> snapshot = Snapshot.of(table, [4, 5], [60.0, 20.0], right_shares=[0.1, 0.0], sides="left",
...                        remainder_costs=[10.0, 0, 0, 10.0])
>>> seen = Seen.of(snapshot, table)
>>> seen.shares, seen.widths, seen.total
(array([0.6, 0.2]), array([2, 1]), 100.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skewless.model.limits import Limits
from skewless.model.snapshot import Floats, Snapshot
from skewless.model.spread import Ints, Spread
from skewless.model.table import Int32s, Table


@dataclass(frozen=True, eq=False)
class Seen:
    """
    left, right     what each key's rows cost on either side of the join
    widths          the partitions that each key is spread over under the table in force
    floors          what each partition carries besides these keys
    slots           how many tasks run at once
    entries         how many keys a table may name
    named           which keys the table names
    """

    partitions: int
    sides: str
    key_hashes: Int32s
    left: Floats
    right: Floats
    widths: Ints
    floors: Floats
    slots: int
    entries: int
    named: np.ndarray

    @classmethod
    def of(
        cls, snapshot: Snapshot, table: Table, limits: Limits | None = None, slots: int | None = None
    ) -> Seen:
        hashes = np.sort(np.concatenate([snapshot.key_hashes, snapshot.split_hashes]))
        split = np.diff(table.split_offsets)
        widths = np.ones(len(hashes), dtype=np.int64)
        at = np.searchsorted(hashes, table.split_hashes)
        there = np.flatnonzero(np.isin(table.split_hashes, hashes))
        widths[at[there]] = split[there]
        cells = Spread.under(table, snapshot.split_hashes).loads(*snapshot.costs_of(snapshot.split_hashes))
        return cls(
            snapshot.partitions,
            snapshot.sides,
            hashes,
            *snapshot.costs_of(hashes),
            widths,
            np.maximum(snapshot.remainder_costs - cells, 0.0),
            min(slots or snapshot.partitions, snapshot.partitions),
            (limits or Limits()).max_entries,
            np.isin(hashes, np.concatenate([table.move_hashes, table.split_hashes])),
        )

    @property
    def total(self) -> float:
        """What all rows cost, each counted once."""
        return float(self.left.sum() + self.right.sum() + self.floors.sum())

    @property
    def shares(self) -> Floats:
        """Of each key in all rows."""
        return (self.left + self.right) / self.total if self.total > 0 else np.zeros(len(self.key_hashes))

    def head(self, theta: float) -> np.ndarray:
        """The keys with a larger share than this, as a mask."""
        return self.shares > theta

    def shape(self, key: int, width: int) -> tuple[int, int]:
        """The grid, rows by columns, of a key that is spread over `width` partitions or a few less. The side
        with more rows is split, where the join leaves a choice; both are where either one alone is more than
        a fair share."""
        left, right = float(self.left[key]), float(self.right[key])
        if width < 2 or not self.sides:
            return 1, 1
        if self.sides == "either" and width >= 4 and min(left, right) > self.total / self.partitions:
            rows = min(width // 2, max(2, round(math.sqrt(width * left / right))))
            return rows, width // rows
        side = ("left" if left >= right else "right") if self.sides == "either" else self.sides
        return (width, 1) if side == "left" else (1, width)

    def cell(self, key: int, width: int) -> float:
        """What each partition carries of a key that is spread so."""
        rows, columns = self.shape(key, width)
        return float(self.left[key] / rows + self.right[key] / columns)

    def copied(self, key: int, width: int) -> float:
        """What the replicas cost beyond the rows themselves."""
        rows, columns = self.shape(key, width)
        return float((columns - 1) * self.left[key] + (rows - 1) * self.right[key])
