"""Where the tuples of a key go in one half of a join: stored at one of its instances, joined at all of them.

Separate from the joiners because this is all that a scheme decides. A half has instances that store one
stream; the other stream's tuples come to look for partners. Lin, Ooi, Wang, Yu: "Scalable Distributed Stream
Join Processing" (BiStream), section 3, has the two schemes that Aj-Stream is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skewless.errors import SettingError
from skewless.model.spread import Spread
from skewless.model.table import Table
from skewless.simulate.compiled import Int32s, Int64s


@dataclass(frozen=True, eq=False)
class Routes:
    """The instances of key k are `targets[offsets[k]:offsets[k + 1]]`."""

    instances: int
    offsets: Int64s
    targets: Int32s

    @property
    def widths(self) -> Int64s:
        return np.diff(self.offsets)

    def of(self, key: int) -> Int32s:
        return self.targets[self.offsets[key] : self.offsets[key + 1]]


def by_table(table: Table, hashes: Int32s) -> Routes:
    """Plain hashing under an empty table; moves and splits of the left side under any other.

    >>> by_table(Table(4, {5: (0, 2), 6: 3}), np.array([4, 5, 6], dtype=np.int32)).targets
    array([0, 0, 2, 3], dtype=int32)
    """
    spread = Spread.under(table, hashes)
    order = np.argsort(spread.keys, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(spread.widths(len(hashes)))]).astype(np.int64)
    return Routes(table.partitions, offsets, spread.cells[order].astype(np.int32))


def in_groups(hashes: Int32s, instances: int, size: int) -> Routes:
    """BiStream-ContRand: the instances are cut into groups of `size`, a key's hash chooses its group, and
    within the group chance decides. With one group, of all instances, this is BiStream's random routing.

    >>> in_groups(np.array([0, 1, 2]), 4, 2).targets
    array([0, 1, 2, 3, 0, 1], dtype=int32)
    """
    if size < 1 or instances % size:
        raise SettingError(f"{instances} instances cannot be cut into groups of {size}. Give a divisor.")
    firsts = size * np.mod(hashes.astype(np.int64), instances // size)
    targets = firsts[:, None] + np.arange(size)
    offsets = size * np.arange(len(hashes) + 1, dtype=np.int64)
    return Routes(instances, offsets, targets.ravel().astype(np.int32))
