"""Slots as keys: lets a move policy, which knows no splits, place the new slots of split keys beside all
other keys.

Separate from the search for the splits that pay, which asks for many such placings. A new slot is a key
under a hash that no key has, at home where `fit` seats it. Targets that a split key had are fixed load. A key
that is whole again is a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Floats, Snapshot
from skewless.model.split import Split
from skewless.model.spread import Ints, Spread, split_under
from skewless.model.table import Int32s, Table
from skewless.policies.splits import Fit
from skewless.policies.splits.fit import least_loaded
from skewless.policies.splits.planned import bytes_moved

MovePolicy = Callable[[Snapshot, Table, Limits], Plan]


@dataclass(frozen=True)
class Change:
    """One key that gets another grid: its cost on each side, the grid it has, and the one it shall have."""

    key_hash: int
    left: float
    right: float
    before: Split
    rows: int
    columns: int


@dataclass(frozen=True)
class _Seated:
    """A changed key with the targets that stay and those that are new. The old ones come first, so that a
    key that grew keeps its head."""

    change: Change
    kept: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def grid(self) -> Split:
        targets, change = self.kept + self.new, self.change
        if change.columns == 1:
            return Split(targets)
        return Split(targets, change.rows if change.rows * change.columns == len(targets) else 1)

    @property
    def cell(self) -> float:
        return self.change.left / self.grid.left_width + self.change.right / self.grid.right_width


def placed(
    snapshot: Snapshot,
    table: Table,
    limits: Limits,
    changes: Sequence[Change],
    fit: Fit,
    moves: MovePolicy,
) -> Table | None:
    """The table after these changes; None if they alone move more bytes than one plan may."""
    hashes = np.array([change.key_hash for change in changes], dtype=np.int32)
    costs, sizes = snapshot.costs_of(hashes), np.array(snapshot.bytes_of(hashes))
    loads = snapshot.loads - Spread.under(table, hashes).loads(*costs)
    seated = [_seat(change, loads, fit) for change in changes]
    spent = sum(
        bytes_moved(key.change.before, key.grid, *size.tolist())
        for key, size in zip(seated, sizes.T, strict=True)
        if len(key.grid) > 1  # a key that is whole again moves like any other
    )
    if spent > limits.max_bytes:
        return None
    problem, seats, names = _as_keys(snapshot, table, seated)
    changed = set(hashes.tolist())
    others = {h: split_under(table, h) for h in table.split_hashes.tolist() if h not in changed}
    splits = len(others) + sum(len(key.grid) > 1 for key in seated)
    rest = replace(
        limits,
        max_entries=max(0, limits.max_entries - splits),
        max_bytes=limits.max_bytes - spent,
    )
    found = moves(problem, seats, rest).table
    real = ~np.isin(found.move_hashes, names)
    whole = dict(zip(found.move_hashes[real].tolist(), found.move_targets[real].tolist(), strict=True))
    grids = _distinct(seated, found.route(names).tolist(), problem.loads_under(seats, found))
    return Table(table.partitions, {**whole, **others, **grids}, table.epoch + 1)


def _seat(change: Change, loads: Floats, fit: Fit) -> _Seated:
    """The targets that stay and where new slots stand at first; adds the key to `loads`."""
    cells, old = change.rows * change.columns, change.before.targets
    if cells == 1:
        home = change.key_hash % len(loads)
        key = _Seated(change, (home if home in old else old[0],), ())
    else:
        kept = old[:cells]
        cell = change.left / change.rows + change.right / change.columns
        new = fit(np.maximum(loads, 0.0), kept, cell, cells - len(kept)) if cells > len(kept) else ()
        if change.rows > 1 and change.columns > 1:  # a grid has no holes
            new += least_loaded(loads, kept + new, cell, cells - len(kept) - len(new))
        key = _Seated(change, kept, new)
    loads[list(key.grid.targets)] += key.cell
    return key


def _as_keys(snapshot: Snapshot, table: Table, seated: Sequence[_Seated]) -> tuple[Snapshot, Table, Int32s]:
    """The snapshot and table that the move policy is given, and the hashes of the new slots in them."""
    changed = np.array([key.change.key_hash for key in seated], dtype=np.int32)
    split = changed[np.isin(changed, table.split_hashes)]
    fixed = snapshot.remainder_costs - Spread.under(table, split).loads(*snapshot.costs_of(split))
    for key in seated:
        if len(key.grid) > 1:
            fixed[list(key.kept)] += key.cell
    whole = [key for key in seated if len(key.grid) == 1]
    stays = ~np.isin(snapshot.key_hashes, changed)
    seats = {h: t for h, t in _moves(table).items() if h not in set(changed.tolist())}
    seats |= {key.change.key_hash: key.kept[0] for key in whole}
    aims = np.array([target for key in seated for target in key.new], dtype=np.int64)
    names = _free_hashes(aims, table.partitions, np.concatenate([snapshot.key_hashes, table.move_hashes]))
    again = np.array([key.change.key_hash for key in whole], dtype=np.int32)
    hashes = np.concatenate([snapshot.key_hashes[stays], again, names])
    slots = np.array([key.cell for key in seated for _ in key.new])
    costs = np.concatenate([snapshot.costs[stays], sum(snapshot.costs_of(again)), slots])
    sizes = np.concatenate([snapshot.state_bytes[stays], sum(snapshot.bytes_of(again)), 0 * slots])
    virtual = Table(table.partitions, seats, table.epoch)
    remainder = np.maximum(fixed, 0.0)
    return Snapshot.of(virtual, hashes, costs, sizes, remainder_costs=remainder), virtual, names


def _moves(table: Table) -> dict[int, int]:
    return dict(zip(table.move_hashes.tolist(), table.move_targets.tolist(), strict=True))


def _free_hashes(homes: Ints, partitions: int, used: Int32s) -> Int32s:
    """A hash for each slot that nobody has and that is at home in its partition: from the lowest on.

    >>> _free_hashes(np.array([0, 1, 0]), 2, np.array([-(1 << 31)], dtype=np.int32)) + np.int64(1 << 31)
    array([2, 1, 4])
    """
    first, names, lowest = -(1 << 31), [], dict[int, int]()
    taken = set(used[used < first + (2 * len(homes) + 1) * partitions].tolist())
    for home in homes.tolist():
        name = lowest.get(home, first + (home - first) % partitions)
        while name in taken:
            name += partitions
        names.append(name)
        lowest[home] = name + partitions
    return np.array(names, dtype=np.int32)


def _distinct(seated: Sequence[_Seated], targets: list[int], loads: Floats) -> dict[int, Split]:
    """The grids with their slots where the move policy put them. Where it put two slots of a key in one
    partition, the second goes to the least loaded one without any."""
    grids, rest = {}, iter(targets)
    for key in seated:
        new: tuple[int, ...] = ()
        for _ in key.new:
            target = next(rest)
            if target in key.kept + new:
                loads[target] -= key.cell
                [target] = least_loaded(loads, key.kept + new, key.cell, 1)
                loads[target] += key.cell
            new += (target,)
        grid = replace(key, new=new).grid
        if len(grid) > 1:
            grids[key.change.key_hash] = grid
    return grids
