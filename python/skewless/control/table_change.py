"""A swap as seen from the batches after it: which keys it moved or split, and what each partition would have
had without it.

Separate from the watch, which remembers the last of them, because it is a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skewless.control.observed import Int64s, ObservedBatch
from skewless.model.plan import PlannedSplit
from skewless.model.spread import Spread, changed_keys, split_under
from skewless.model.table import Int32s, Table


@dataclass(frozen=True, eq=False)
class TableChange:
    """From `before` to `after`, which is in force as `epoch`."""

    epoch: int
    before: Table
    after: Table

    @cached_property
    def key_hashes(self) -> Int32s:
        """Of all keys that changed or are split."""
        return changed_keys(self.before, self.after)

    @property
    def moved(self) -> list[int]:
        """The keys that are whole before and after."""
        split = np.concatenate([self.before.split_hashes, self.after.split_hashes])
        return [int(key_hash) for key_hash in self.key_hashes[~np.isin(self.key_hashes, split)]]

    @property
    def splits(self) -> tuple[PlannedSplit, ...]:
        """The others, without what a plan would say of them."""
        found = (
            PlannedSplit(key_hash, split_under(self.before, key_hash), split_under(self.after, key_hash))
            for key_hash in np.setdiff1d(self.key_hashes, self.moved).tolist()
        )
        return tuple(split for split in found if split.changes)

    def rows_before(self, batch: ObservedBatch) -> Int64s:
        """The rows that each partition would have had under the table before, as far as keys were counted.

        >>> batch = ObservedBatch(3, 1, 9, rows=[10, 10], bytes=[0, 0], run_ms=[1, 1], key_hashes=[4, 6],
        ...                       key_rows=[8, 2])
        >>> TableChange(1, Table(2), Table(2, {4: 1})).rows_before(batch)
        array([18,  2])
        >>> TableChange(1, Table(2), Table(2, {4: (0, 1)})).rows_before(batch)
        array([14,  6])
        """
        counted = np.flatnonzero(np.isin(batch.key_hashes, self.key_hashes))
        left, right = (side[counted].astype(np.float64) for side in batch.rows_by_side)
        then, now = (
            Spread.under(table, batch.key_hashes[counted]).loads(left, right)
            for table in (self.before, self.after)
        )
        return np.maximum(np.rint(batch.rows - now + then), 0).astype(np.int64)
