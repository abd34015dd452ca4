"""From widths to a plan: the slots of split keys become items that a move policy places beside the other
keys.

Separate from the split policies, which know shares but no loads, and from the move policies, which know no
splits. To a move policy a new slot is a key like any other, under a hash that no key has. Targets that a key
has already stay: their load is fixed, so growth adds targets and shrinking drops them.

A split is made only if it pays. Of the keys that shall grow, the heaviest 0, 1, 2, ... are split, each choice
is planned, and the fewest splits win that make the tasks about as short as the best choice does. The time
counts replicas as work. With none, what the move policy says alone is the plan.

Half of the rows are of key hash 4, and the other side of the join has few of them:

>>> from skewless.policies import get, splits
>>> table = Table(4)
>>> snapshot = Snapshot.of(table, range(4, 11), [60.0, *[10] * 6], right_shares=[0.02, *[0] * 6],
...                        sides="left")
>>> plan = split_and_move(snapshot, table, Limits(), splits.get("auto"), get("mixed"))
>>> plan.splits[0].after.side, round(plan.imbalance_before, 2), plan.imbalance_after < 0.05
('left', 1.33, True)
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from skewless.errors import PolicyError
from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.split import Split
from skewless.model.spread import Ints, split_under
from skewless.model.table import Table
from skewless.policies.splits import SplitPolicy
from skewless.policies.splits.planned import Tasks, heaviest, plan_between
from skewless.policies.splits.seen import Seen
from skewless.policies.splits.slots import Change, MovePolicy, placed

CLOSE = 1.05  # times that differ by less are alike, and fewer splits win
SHRINK = 2  # a split with so many times more targets than it needs gives some up; take_back does the rest
FEW = 6  # choices of how many keys to split are tried one by one up to here, then in doubles


def split_and_move(
    snapshot: Snapshot,
    table: Table,
    limits: Limits,
    splits: SplitPolicy,
    moves: MovePolicy,
    tasks: Tasks = heaviest,
    slots: int | None = None,
) -> Plan:
    """The plan of the move policy with those splits that pay; `tasks` says how long work takes."""
    started = time.perf_counter()
    plain = moves(snapshot, table, limits)
    if not snapshot.sides or table.partitions < 2 or not snapshot.loads.any():
        return plain
    seen = Seen.of(snapshot, table, limits, slots)
    shrinking, growing = _changes(seen, _widths(splits, seen), table, limits)
    best, shortest = plain, tasks(snapshot.loads_under(table, plain.table))
    for some in _choices(growing) if shrinking or growing else ():
        after = placed(snapshot, table, limits, [*shrinking, *some], splits.fit, moves)
        if after is None or len(after) > max(limits.max_entries, len(table)):
            continue
        plan = plan_between(snapshot, table, after, limits, tasks, started)
        taken = tasks(snapshot.loads_under(table, after))
        if plan.bytes_moved <= limits.max_bytes and CLOSE * taken < shortest:
            best, shortest = plan, taken
    return best


def _widths(splits: SplitPolicy, seen: Seen) -> Ints:
    """What the policy says, if it can be meant so; a user's is not trusted."""
    widths = np.asarray(splits.widths(seen))
    if widths.shape != seen.key_hashes.shape or widths.dtype.kind not in "iu":
        raise PolicyError(
            f"split policy {splits.name!r} gave widths of shape {widths.shape} and type {widths.dtype} for "
            f"{len(seen.key_hashes)} keys. Give one whole number for each."
        )
    return np.clip(widths.astype(np.int64), 1, seen.partitions)


def _changes(seen: Seen, wanted: Ints, table: Table, limits: Limits) -> tuple[list[Change], list[Change]]:
    """The keys that shall shrink, and those that shall grow, the heaviest first, as far as entries are
    allowed. A split keeps its side as long as it lasts, and a grid its shape."""
    shrinking, growing = [], []
    costs = seen.left + seen.right
    room = limits.max_entries - len(table.split_hashes)
    for key in np.lexsort((seen.key_hashes, -costs)).tolist():
        has, wants = int(seen.widths[key]), int(wanted[key])
        if wants <= has < SHRINK * wants or (has == wants == 1):
            continue
        change = _change(seen, key, wants, split_under(table, int(seen.key_hashes[key])))
        cells = change.rows * change.columns
        if cells < has:
            shrinking.append(change)
        elif cells > has and (has > 1 or room > 0) and costs[key] > 0:
            room -= has == 1
            growing.append(change)
    return shrinking, growing


def _change(seen: Seen, key: int, width: int, before: Split) -> Change:
    rows, columns = seen.shape(key, width)
    if before.side and width > 1:
        shapes = {"left": (width, 1), "right": (1, width)}
        rows, columns = shapes.get(before.side, (before.left_width, before.right_width))
    return Change(
        int(seen.key_hashes[key]), float(seen.left[key]), float(seen.right[key]), before, rows, columns
    )


def _choices(growing: list[Change]) -> Iterator[list[Change]]:
    """The heaviest 0, 1, 2, ... of them; from six on in doubles."""
    counts = {*range(min(FEW, len(growing)) + 1), len(growing)}
    counts |= {2**power for power in range(3, 31) if 2**power < len(growing)}
    return (growing[:count] for count in sorted(counts))
