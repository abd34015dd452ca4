"""From targets to a plan that keeps the limits: trims the table, keeps the byte budget, and refuses to do
harm.

Separate from the policies because every one of them ends here, so that none can return a plan that is too
large, too dear, or worse than doing nothing. What it had to give up, it says in the plan's reasons.
"""

from __future__ import annotations

import time

import numpy as np

from skewless.model.plan import Moves, Plan
from skewless.model.snapshot import Floats
from skewless.model.spread import split_under
from skewless.model.table import Table
from skewless.policies.problem import Ints, Problem


def settle(problem: Problem, targets: Ints, reasons: tuple[str, ...] = ()) -> Plan:
    """The plan that sends item i to targets[i], as far as the limits allow; the old table if that would be
    worse.

    Worse means: above max_imbalance, and more imbalanced than the input.
    """
    targets, trimmed = _within_entries(problem, targets)
    targets, shortened = _within_bytes(problem, targets)
    before, after = problem.imbalance(problem.items.sources), problem.imbalance(targets)
    words = reasons + trimmed + shortened
    if after > max(before, problem.limits.max_imbalance) + 1e-12:
        words += (
            f"worse: the best plan found has imbalance {after:.4f}, the table in force {before:.4f}; it "
            "stays in force",
        )
        targets = problem.items.sources
    return _plan(problem, targets, words)


def stay(problem: Problem, reasons: tuple[str, ...] = ()) -> Plan:
    """The plan that changes nothing."""
    return _plan(problem, problem.items.sources, reasons)


def entries_of(problem: Problem, targets: Ints) -> int:
    """How many entries a table needs for these targets, splits not counted."""
    return int(np.count_nonzero(targets != problem.items.homes))


def _within_entries(problem: Problem, targets: Ints) -> tuple[Ints, tuple[str, ...]]:
    """Keeps the entries with the largest cost, sends the other keys home."""
    away = np.flatnonzero(targets != problem.items.homes)
    if len(away) <= problem.entries:
        return targets, ()
    by_cost = away[np.argsort(-problem.items.costs[away], kind="stable")]
    kept = targets.copy()
    kept[by_cost[problem.entries :]] = problem.items.homes[by_cost[problem.entries :]]
    return kept, (
        f"entries: the plan wants {len(away)} moves in the table, {problem.entries} fit; the costliest were "
        "kept",
    )


def _within_bytes(problem: Problem, targets: Ints) -> tuple[Ints, tuple[str, ...]]:
    """If the moves exceed the budget: the prefix of them, most cost per byte first, that levels best within
    it."""
    items, sources = problem.items, problem.items.sources
    moved = np.flatnonzero(targets != sources)
    wanted = float(items.state_bytes[moved].sum())
    if wanted <= problem.limits.max_bytes:
        return targets, ()
    moved = moved[np.argsort(-items.priority(problem.limits.beta)[moved], kind="stable")]
    heights = _prefix_heights(problem, moved, targets)
    size = entries_of(problem, sources)
    sizes = size + np.cumsum((targets != items.homes)[moved].astype(int) - (sources != items.homes)[moved])
    allowed = (np.cumsum(items.state_bytes[moved]) <= problem.limits.max_bytes) & (
        sizes <= max(problem.entries, size)
    )
    heights[1:][~allowed] = np.inf
    best = int(np.argmin(heights))
    shortened = sources.copy()
    shortened[moved[:best]] = targets[moved[:best]]
    allowance = f"{problem.limits.max_bytes:.0f} may"
    return shortened, (
        f"bytes: the plan wants to move {wanted:.0f} bytes, {allowance}; {best} of {len(moved)} moves were "
        "kept",
    )


def _prefix_heights(problem: Problem, moved: Ints, targets: Ints) -> Floats:
    """The highest load after the first 0, 1, 2, ... of the moves."""
    loads = problem.loads(problem.items.sources)
    heights = np.empty(len(moved) + 1)
    heights[0] = loads.max()
    for step, item in enumerate(moved.tolist(), start=1):
        loads[problem.items.sources[item]] -= problem.items.costs[item]
        loads[targets[item]] += problem.items.costs[item]
        heights[step] = loads.max()
    return heights


def _plan(problem: Problem, targets: Ints, reasons: tuple[str, ...]) -> Plan:
    items = problem.items
    moved = np.flatnonzero(targets != items.sources)
    before, after = problem.imbalance(items.sources), problem.imbalance(targets)
    size = entries_of(problem, targets) + len(problem.table.split_hashes)
    met = after <= problem.limits.max_imbalance + 1e-9 and size <= problem.limits.max_entries
    moves = Moves.of(
        problem.key_hashes[moved], items.sources[moved], targets[moved], items.state_bytes[moved]
    )
    table = _table(problem, targets) if len(moved) else problem.table
    words = () if met else _explain(problem, targets, after, size) + reasons
    return Plan(table, moves, before, after, time.perf_counter() - problem.started, met, words)


def _table(problem: Problem, targets: Ints) -> Table:
    old, away = problem.table, targets != problem.items.homes
    if not old.has_splits:
        return Table.of_moves(old.partitions, problem.key_hashes[away], targets[away], old.epoch + 1)
    moves = zip(problem.key_hashes[away].tolist(), targets[away].tolist(), strict=True)
    splits = {key_hash: split_under(old, key_hash) for key_hash in old.split_hashes.tolist()}
    return Table(old.partitions, dict(moves) | splits, old.epoch + 1)


def _explain(problem: Problem, targets: Ints, after: float, size: int) -> tuple[str, ...]:
    """Why the limits are not met, from what cannot be changed to what was not found."""
    words = []
    giants = np.flatnonzero(problem.giants)
    for item in giants[np.argsort(-problem.items.costs[giants], kind="stable")][:3].tolist():
        share, floor = problem.items.costs[item] / problem.mean, problem.fixed.min() / problem.mean
        beside = f", on top of {floor:.2f} that cannot move" if floor > 0 else ""
        words.append(
            f"split: key hash {problem.key_hashes[item]} carries {share:.2f} times the mean{beside}; only a "
            "split can level it"
        )
    for partition in np.flatnonzero(problem.fixed > problem.ceiling + problem.slack).tolist()[:3]:
        share = problem.fixed[partition] / problem.mean
        words.append(
            f"fixed: partition {partition} holds {share:.2f} times the mean in keys that cannot move; track "
            "more keys"
        )
    if size > problem.limits.max_entries:
        words.append(
            f"entries: the table in force has {size} entries, {problem.limits.max_entries} are allowed"
        )
    if after > problem.limits.max_imbalance:
        words.append(f"imbalance: {after:.4f} is predicted, {problem.limits.max_imbalance:.4f} was asked for")
    return tuple(words)
