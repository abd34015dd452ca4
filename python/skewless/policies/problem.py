"""The problem that every policy solves: items that may move, loads that may not, and how high a partition may
be filled.

Separate from the policies because all of them start here. A million keys become some thousand items: only the
heaviest keys can matter to a table of `max_entries` entries; all others stay where hashing puts them and
count as fixed load.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skewless.errors import PolicyError
from skewless.model.limits import Limits
from skewless.model.snapshot import Floats, Snapshot, imbalance_of
from skewless.model.table import Int32s, Table

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ITEMS_PER_ENTRY = (
    4  # keys looked at for each entry allowed: exchanges need lighter keys than those that get an entry
)
MIN_ITEMS = 16_384  # with fewer, the keys that count as fixed leave no room for a heavy key that would fit
TOLERANCE = 1e-9  # of the mean load: sums of floats in another order differ by less


@dataclass(frozen=True, eq=False)
class Items:
    """Keys: the cost and state bytes of each, where it is, and where hashing puts it. `counts` is 1 for each,
    but for the compact policy, whose items are groups of so many like keys."""

    costs: Floats
    state_bytes: Floats
    counts: Ints
    sources: Ints
    homes: Ints

    def __len__(self) -> int:
        return len(self.costs)

    def at(self, positions: Ints) -> Items:
        """These items only, in this order."""
        at = positions
        return Items(self.costs[at], self.state_bytes[at], self.counts[at], self.sources[at], self.homes[at])

    def priority(self, beta: float) -> Floats:
        """cost^beta / state: how much load a key takes along for each byte that must migrate (section III-B).

        A key without cost helps nobody and comes last, even if it has no state either.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            gamma = self.costs**beta / self.state_bytes
        return np.where(self.costs > 0, gamma, 0.0)


@dataclass(frozen=True, eq=False)
class Problem:
    """One call of a policy: the items in order of key hash, the fixed load of each partition, and the
    limits."""

    snapshot: Snapshot
    table: Table
    limits: Limits
    key_hashes: Int32s
    items: Items
    fixed: Floats
    mean: float
    started: float

    @property
    def partitions(self) -> int:
        return self.snapshot.partitions

    @property
    def slack(self) -> float:
        """What counts as equal when loads are compared."""
        return TOLERANCE * self.mean

    @property
    def ceiling(self) -> float:
        """L_max: the load that no partition should exceed."""
        return (1.0 + self.limits.max_imbalance) * self.mean

    @property
    def giants(self) -> Bools:
        """Keys that lift any partition above the ceiling, alone or on top of what cannot move: no move can
        level them."""
        return self.items.costs > self.ceiling - float(self.fixed.min()) + self.slack

    @property
    def entries(self) -> int:
        """Entries that are left for moves: splits are not this family's to touch, but they take their
        place."""
        return max(0, self.limits.max_entries - len(self.table.split_hashes))

    def loads(self, targets: Ints) -> Floats:
        """The load of each partition if item i goes to targets[i]."""
        return self.fixed + np.bincount(targets, weights=self.items.costs, minlength=self.partitions)

    def imbalance(self, targets: Ints) -> float:
        return imbalance_of(self.loads(targets))


def pose(snapshot: Snapshot, table: Table, limits: Limits) -> Problem:
    """The problem of one snapshot under the table that routed it."""
    started = time.perf_counter()
    if snapshot.partitions != table.partitions:
        raise PolicyError(
            f"the snapshot has {snapshot.partitions} partitions, the table {table.partitions}. Plan a query "
            "with its own table."
        )
    if snapshot.epoch != table.epoch:
        raise PolicyError(
            f"the snapshot was routed by epoch {snapshot.epoch}, the table is epoch {table.epoch}. Wait for "
            "the next snapshot."
        )
    chosen = _heaviest(snapshot.costs, max(ITEMS_PER_ENTRY * limits.max_entries, MIN_ITEMS))
    known, unseen = _entries(snapshot, table)
    chosen = np.union1d(chosen, known) if len(chosen) < len(snapshot.costs) else chosen
    seen = _items(snapshot, chosen)
    at_source = np.bincount(seen.sources, weights=seen.costs, minlength=snapshot.partitions)
    hashes, items = _with_unseen(snapshot.key_hashes[chosen], seen, table, unseen)
    fixed = np.maximum(snapshot.loads - at_source, 0.0)
    return Problem(snapshot, table, limits, hashes, items, fixed, float(snapshot.loads.mean()), started)


def _heaviest(costs: Floats, most: int) -> NDArray[np.intp]:
    if len(costs) <= most:
        return np.arange(len(costs))
    return np.sort(np.argpartition(costs, len(costs) - most)[-most:])


def _entries(snapshot: Snapshot, table: Table) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions in the snapshot of the table's moves, and positions in the table of moves that the snapshot
    lacks."""
    if not len(snapshot.key_hashes):
        return np.array([], dtype=np.intp), np.arange(len(table.move_hashes))
    at = np.minimum(np.searchsorted(snapshot.key_hashes, table.move_hashes), len(snapshot.key_hashes) - 1)
    found = snapshot.key_hashes[at] == table.move_hashes
    return at[found], np.flatnonzero(~found)


def _items(snapshot: Snapshot, chosen: NDArray[np.intp]) -> Items:
    homes = snapshot.key_hashes[chosen].astype(np.int64) % snapshot.partitions
    ones = np.ones(len(chosen), dtype=np.int64)
    return Items(
        snapshot.costs[chosen],
        snapshot.state_bytes[chosen],
        ones,
        snapshot.sources[chosen].astype(np.int64),
        homes,
    )


def _with_unseen(hashes: Int32s, seen: Items, table: Table, unseen: NDArray[np.intp]) -> tuple[Int32s, Items]:
    """Adds the entries of keys that no row was seen of: their cost, if any, lies in a remainder, so they
    weigh nothing."""
    if not len(unseen):
        return hashes, seen
    all_hashes = np.concatenate([hashes, table.move_hashes[unseen]])
    order = np.argsort(all_hashes)
    nothing = np.zeros(len(unseen))
    joined = Items(
        np.concatenate([seen.costs, nothing]),
        np.concatenate([seen.state_bytes, nothing]),
        np.concatenate([seen.counts, np.ones(len(unseen), dtype=np.int64)]),
        np.concatenate([seen.sources, table.move_targets[unseen].astype(np.int64)]),
        np.concatenate([seen.homes, table.move_hashes[unseen].astype(np.int64) % table.partitions]),
    )
    return all_hashes[order], joined.at(order)
