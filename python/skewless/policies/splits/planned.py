"""From two tables to the plan that leads from one to the other: its moves, its splits, what they cost and
gain.

Separate from the placing, which finds the next table, because taking splits back ends here, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from skewless.model.limits import Limits
from skewless.model.plan import Moves, Plan, PlannedSplit
from skewless.model.snapshot import Floats, Snapshot, imbalance_of
from skewless.model.split import Split
from skewless.model.spread import Spread, split_under
from skewless.model.table import Table, diff

Tasks = Callable[[Floats], float]
"""How long tasks of this much work take together, in any unit."""


def heaviest(loads: Floats) -> float:
    """With a slot for each partition a batch lasts as long as the heaviest one."""
    return float(loads.max())


def plan_between(
    snapshot: Snapshot,
    before: Table,
    after: Table,
    limits: Limits,
    tasks: Tasks,
    started: float,
    reasons: tuple[str, ...] = (),
) -> Plan:
    """The plan whose table is `after`."""
    split = set(before.split_hashes.tolist()) | set(after.split_hashes.tolist())
    moved = [change for change in diff(before, after) if change.key_hash not in split]
    hashes = np.array([change.key_hash for change in moved], dtype=np.int32)
    moves = Moves.of(
        hashes,
        [next(iter(change.before)) for change in moved],
        [next(iter(change.after)) for change in moved],
        sum(snapshot.bytes_of(hashes)),
    )
    loads = snapshot.loads_under(before, after)
    splits = tuple(_planned(snapshot, before, after, loads, tasks, key_hash) for key_hash in sorted(split))
    imbalance = imbalance_of(loads)
    met = imbalance <= limits.max_imbalance + 1e-9 and len(after) <= limits.max_entries
    if not met:
        reasons += (f"imbalance: {imbalance:.4f} is predicted, {limits.max_imbalance:.4f} was asked for",)
    return Plan(
        after,
        moves,
        snapshot.imbalance,
        imbalance,
        time.perf_counter() - started,
        met,
        () if met else reasons,
        splits,
    )


def bytes_moved(before: Split, after: Split, left: float, right: float) -> float:
    """The state that a change of a key's split moves, if it has so much on either side.

    A new target gets a copy of the rows of the side that is not dealt out; what a dropped target holds of the
    other side goes to one that remains. Rows of the split side that lie at a target that stays, stay there.

    >>> bytes_moved(Split((3,)), Split.left(3, 0, 5), left=600, right=10)      # two copies of the right
    20.0
    >>> bytes_moved(Split.left(3, 0, 5), Split((3,)), left=600, right=10)      # two thirds of the left
    400.0
    >>> bytes_moved(Split((3,)), Split((4,)), left=600, right=10)
    610.0
    """
    new, gone = set(after.targets) - set(before.targets), set(before.targets) - set(after.targets)
    side = after.side or before.side or "left"
    dealt, copied = (left, right) if side == "left" else (right, left)
    if side == "both":
        cell = left / after.left_width + right / after.right_width
        return len(new) * cell + len(gone) * (left / before.left_width + right / before.right_width)
    return float(len(new) * copied + len(gone) * dealt / len(before))


def _planned(
    snapshot: Snapshot, before: Table, after: Table, loads: Floats, tasks: Tasks, key_hash: int
) -> PlannedSplit:
    one = np.array([key_hash], dtype=np.int32)
    costs, sizes = snapshot.costs_of(one), snapshot.bytes_of(one)
    spread, old, new = Spread.under(after, one), split_under(before, key_hash), split_under(after, key_hash)
    once, all_copies = float(costs[0][0] + costs[1][0]), float(spread.copies(*costs)[0])
    without = loads - spread.loads(*costs)
    whole = without.copy()
    whole[int(without.argmin())] += once
    slow, fast, work = tasks(np.maximum(whole, 0.0)), tasks(loads), float(loads.sum())
    return PlannedSplit(
        key_hash,
        old,
        new,
        copied_share=(all_copies - once) / work if work > 0 else 0.0,
        copied_bytes=float((spread.copies(*sizes) - sizes[0] - sizes[1])[0]),
        bytes_moved=bytes_moved(old, new, *(float(size[0]) for size in sizes)) if old != new else 0.0,
        gain=(slow - fast) / slow if slow > 0 else 0.0,
    )
