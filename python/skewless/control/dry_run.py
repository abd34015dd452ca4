"""What the loop would do with a query now, and what that would bring, without doing it.

Separate from the watch because it remembers nothing, and asks the same controller once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from skewless.control.clock import Timekeeper
from skewless.control.controller import Controller, Decision
from skewless.control.costs import snapshot_of
from skewless.control.observed import ObservedBatch
from skewless.control.settings import Settings
from skewless.model.table import Table
from skewless.wording import amount, counted

SHOWN_KEYS = 5


@dataclass(frozen=True, eq=False)
class DryRun:
    """`print` it; `decision.plan` is what `balancer.publish(query, decision.plan.table)` would take.

    obstacle    why the query would not take the table, if it would not
    """

    query: str
    batches: tuple[int, ...]
    decision: Decision
    obstacle: str | None = None

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        seen = f"batch {first}" if first == last else f"batches {first} to {last}"
        lines = [f"query {self.query}, by {seen}: {self._action()}; nothing is published"]
        lines += [f"  because {self.decision.why}"]
        plan = self.decision.plan
        if plan is not None and plan.changes:
            moves = plan.moves
            hashes = " ".join(str(key_hash) for key_hash in moves.key_hashes[:SHOWN_KEYS].tolist())
            more = " ..." if len(moves) > SHOWN_KEYS else ""
            lines += [
                f"  the plan: {counted(len(moves), 'key')} (hashes {hashes}{more}) and "
                f"{amount(plan.bytes_moved)} of state would move",
                f"  imbalance: {self.decision.before:.3f} now, {self.decision.predicted:.3f} predicted "
                "(share of time lost against level tasks)",
            ]
        lines += [] if self.obstacle is None else [f"  but the query cannot be balanced: {self.obstacle}"]
        return "\n".join(lines)

    def _action(self) -> str:
        return "the loop would swap tables" if self.decision.action == "swap" else "the loop would do nothing"


def dry_run(
    query: str,
    batches: Sequence[ObservedBatch],
    table: Table,
    settings: Settings,
    obstacle: str | None = None,
) -> DryRun:
    """By these batches, oldest first, all routed by `table`, as if imbalance had been seen often enough.

    >>> batch = ObservedBatch(7, 0, 2500, rows=[100, 0], bytes=[1000, 0], run_ms=[2000, 1],
    ...                       key_hashes=[4, 6], key_rows=[50, 50])
    >>> print(dry_run("clicks", [batch], Table(2), Settings()))
    query clicks, by batch 7: the loop would swap tables; nothing is published
      because gain: 50.00 s over 50 batches for 0.20 s
      the plan: 1 key (hashes 4) and 500 B of state would move
      imbalance: 1.000 now, 0.000 predicted (share of time lost against level tasks)
    """
    times = Timekeeper()
    for batch in batches:
        times.learn(batch)
    used = list(batches)[-settings.window :]
    controller = Controller(
        table,
        settings.policy or "mixed",
        limits=settings.limits,
        pace=replace(settings.pace, patience=1),
    )
    snapshot = snapshot_of(used, table, settings.cost, decay=settings.decay)
    clock = times.clock(table.partitions)
    decision = controller.observe(
        snapshot, clock=clock if settings.cost is None else replace(clock, task_seconds=0.0)
    )
    return DryRun(query, tuple(batch.batch for batch in used), decision, obstacle)
