"""Where the rows of keys lie under a table, split or whole: the one model of load, for rows, costs and bytes.

Separate from table and snapshot because both what was observed and what is planned are spread by it. A left
row of a key that is split over a grid of a x b lies in the b cells of one of its a rows, a right row in the a
cells of one of its b columns. So each cell holds 1/a of the left rows and 1/b of the right ones. A whole key
is a grid of one cell.

Key hash 4 has 60 left rows and 6 right ones, and its left side is split over two partitions; hash 5 is whole:

>>> spread = Spread.under(Table(3, {4: (0, 2)}), [4, 5])
>>> spread.loads(left=np.array([60.0, 7.0]), right=np.array([6.0, 0.0]))
array([36.,  0., 43.])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.model.split import Int32s, Split
from skewless.model.table import Table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Spread:
    """The cells of some keys, one after the other: which key each belongs to, the partition it is, and the
    shares of the key's left and right rows that lie there."""

    partitions: int
    keys: Ints
    cells: Ints
    left_shares: Floats
    right_shares: Floats

    @classmethod
    def under(cls, table: Table, key_hashes: ArrayLike) -> Spread:
        """The cells of these keys under a table; a key that comes twice has its cells twice."""
        hashes = np.asarray(key_hashes, dtype=np.int32)
        split = np.isin(hashes, table.split_hashes)
        whole = np.flatnonzero(~split)
        keys, cells = [whole], [table.route(hashes[whole]).astype(np.int64)]
        shares = [np.ones((2, len(whole)))]
        for key in np.flatnonzero(split).tolist():
            grid = split_under(table, int(hashes[key]))
            keys.append(np.full(len(grid), key))
            cells.append(np.array(grid.targets, dtype=np.int64))
            shares.append(np.repeat([[1 / grid.left_width], [1 / grid.right_width]], len(grid), axis=1))
        left, right = np.concatenate(shares, axis=1)
        return cls(table.partitions, np.concatenate(keys), np.concatenate(cells), left, right)

    def amounts(self, left: Floats, right: Floats) -> Floats:
        """What each cell holds, if the keys have so much on the left and on the right, each row counted
        once."""
        return left[self.keys] * self.left_shares + right[self.keys] * self.right_shares

    def loads(self, left: Floats, right: Floats) -> Floats:
        """What each partition holds of it."""
        return _sums(self.cells, self.amounts(left, right), self.partitions)

    def copies(self, left: Floats, right: Floats) -> Floats:
        """How much of each key there is, replicas counted."""
        return _sums(self.keys, self.amounts(left, right), len(left))

    def widths(self, keys: int) -> Ints:
        """How many cells each of so many keys has."""
        return np.bincount(self.keys, minlength=keys)

    def means(self, of_partitions: Floats, keys: int) -> Floats:
        """The mean over each key's cells of what is known of the partitions."""
        return _sums(self.keys, of_partitions[self.cells], keys) / np.maximum(self.widths(keys), 1)


def changed_keys(before: Table, after: Table) -> Int32s:
    """The keys whose targets differ between two tables, and all that either splits: `diff` without its loop.

    >>> changed_keys(Table(4, {1: 3, 2: 0}), Table(4, {1: 3, 6: 0, 9: (1, 2)}))
    array([2, 6, 9], dtype=int32)
    """
    split = np.union1d(before.split_hashes, after.split_hashes)
    whole = np.setdiff1d(np.union1d(before.move_hashes, after.move_hashes), split)
    moved = whole[before.route(whole) != after.route(whole)]
    return np.union1d(moved, split).astype(np.int32)


def _sums(places: Ints, amounts: Floats, length: int) -> Floats:
    return np.bincount(places, weights=amounts, minlength=length).astype(np.float64)


def split_under(table: Table, key_hash: int) -> Split:
    """The grid of a key; of a whole key one cell."""
    return table.split_of(key_hash) or Split(table.targets(key_hash))
