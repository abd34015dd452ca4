"""Takes splits back whose keys have cooled: narrower, or whole again, as long as the partitions stay level.

Separate from the placing because it runs when there is nothing to level, as `policies/take_back.py` does for
moves. A split is made above max_imbalance, and taken back only if the tasks take no longer than before, or
stay within the limit that this is given, which is lower. So a key on the edge does not go to and fro.
"""

from __future__ import annotations

import time

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Floats, Snapshot
from skewless.model.split import Split
from skewless.model.spread import Spread, split_under
from skewless.model.table import Table
from skewless.policies.splits.planned import Tasks, bytes_moved, heaviest, plan_between

STEP = 16  # splits a plan: a table goes back in small steps, each observed before the next


def take_splits_back(
    snapshot: Snapshot, table: Table, limits: Limits, tasks: Tasks = heaviest
) -> Plan | None:
    """Narrows up to 16 splits, those of the lightest keys first; None if every one is needed.

    >>> table = Table(4, {4: (0, 1, 2)})       # hash 4 was hot once
    >>> snapshot = Snapshot.of(table, [4, 5, 6, 7], [1.0, 9, 9, 9], remainder_costs=[9.0, 0, 0, 0])
    >>> take_splits_back(snapshot, table, Limits(max_imbalance=0.2)).table == Table(4, epoch=1)
    True
    """
    started, loads, spent = time.perf_counter(), snapshot.loads.copy(), 0.0
    hashes, narrowed = table.split_hashes, dict[int, Split]()
    lefts, rights = snapshot.costs_of(hashes)
    sizes = np.array(snapshot.bytes_of(hashes)).T
    for key in np.lexsort((hashes, lefts + rights)).tolist():
        key_hash, left, right = int(hashes[key]), float(lefts[key]), float(rights[key])
        old, one = split_under(table, key_hash), hashes[key : key + 1]
        without = loads - Spread.under(table, one).loads(lefts[key : key + 1], rights[key : key + 1])
        allowed = max(tasks(loads), (1 + limits.max_imbalance) * tasks(np.full_like(loads, loads.mean())))
        new = _narrower(old, key_hash, left, right, np.maximum(without, 0.0), tasks, allowed)
        cost = bytes_moved(old, new, *sizes[key].tolist()) if new is not None else 0.0
        if new is None or spent + cost > limits.max_bytes or len(narrowed) == STEP:
            continue
        narrowed[key_hash], spent, loads = new, spent + cost, _with(without, new, left, right)
    if not narrowed:
        return None
    entries: dict[int, int | Split] = dict(
        zip(table.move_hashes.tolist(), table.move_targets.tolist(), strict=True)
    )
    entries |= {key_hash: split_under(table, key_hash) for key_hash in hashes.tolist()} | narrowed
    plain = {h for h, grid in narrowed.items() if grid.targets == (h % table.partitions,)}
    after = Table(table.partitions, {h: to for h, to in entries.items() if h not in plain}, table.epoch + 1)
    return plan_between(snapshot, table, after, limits, tasks, started)


def _narrower(
    old: Split, key_hash: int, left: float, right: float, without: Floats, tasks: Tasks, allowed: float
) -> Split | None:
    """The narrowest grid over targets that the key has, home first, with which the tasks take no longer than
    is allowed. A grid of both sides is kept or ended, never reshaped."""
    home = key_hash % len(without)
    targets = sorted(old.targets, key=lambda target: (target != home, old.targets.index(target)))
    found = [Split((target,)) for target in targets]
    if old.side != "both":
        found += [_first(old, width) for width in range(2, len(old))]
    for grid in found:
        if tasks(_with(without, grid, left, right)) <= allowed * (1 + 1e-9):
            return grid
    return None


def _first(old: Split, width: int) -> Split:
    return Split(old.targets[:width], width if old.side == "left" else 1)


def _with(without: Floats, grid: Split, left: float, right: float) -> Floats:
    loads = without.copy()
    loads[list(grid.targets)] += left / grid.left_width + right / grid.right_width
    return loads
