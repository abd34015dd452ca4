"""The controller: sees every snapshot of one query, and decides when a plan is worth a swap.

Separate from the policies because they are pure and it is not: all that must be remembered between batches is
here. It knows no Spark and no thread: whoever calls it hands in snapshots, carries out the swaps it decides
on, and reports how they went.

>>> clock = iter(range(0, 10_000, 60)).__next__          # a minute passes between two looks at the clock
>>> controller = Controller(Table(2), pace=Pace(patience=1), clock=clock)
>>> decision = controller.observe(Snapshot.of(controller.table, [0, 2], [40.0, 40.0], batches=(1,)))
>>> decision.action, decision.plan.imbalance_before, decision.plan.imbalance_after
('swap', 1.0, 0.0)
>>> controller.finished(decision.plan.table.epoch, seconds=0.3)
>>> controller.observe(Snapshot.of(controller.table, [0, 2], [40.0, 40.0], batches=(2,))).why
'level: imbalance 0.000 is within 0.080'
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from skewless import policies
from skewless.control.clock import Clock
from skewless.control.pace import Pace
from skewless.control.payback import Payback
from skewless.control.swap_cost import SwapCost
from skewless.control.troubles import Troubles
from skewless.errors import PolicyError
from skewless.model.plan import Plan
from skewless.model.snapshot import Floats, Snapshot
from skewless.model.table import Table
from skewless.policies import Limits, Policy
from skewless.policies.splits import SplitPolicy
from skewless.policies.splits.place import split_and_move
from skewless.policies.splits.take_back import take_splits_back
from skewless.policies.take_back import take_back
from skewless.wording import counted

HOUR_SECONDS = 3600.0
LOOSER = (1.0, 3.0, 10.0)  # tolerances to plan by where the scheduler levels, too; times the one aimed at


@dataclass(frozen=True)
class Decision:
    """What to do after a snapshot, and why. A swap carries its plan, the imbalance that it answers and the
    one that it should leave."""

    action: Literal["stay", "swap"]
    why: str
    plan: Plan | None = None
    before: float = 0.0
    predicted: float = 0.0


@dataclass(frozen=True)
class PendingSwap:
    """A swap that was decided on and not settled yet; `epoch` and `batch` are -1 until it is published.

    `before` and `predicted` are the imbalance that it answers, and the one that it should leave. One that
    stands down need not pay."""

    plan: Plan
    why: str
    before: float = 0.0
    predicted: float = 0.0
    must_pay: bool = True
    epoch: int = -1
    batch: int = -1


@dataclass(frozen=True)
class ControllerStatus:
    """What the controller would tell a person; imbalances are shares of time lost (`Clock.lost`)."""

    epoch: int
    entries: int
    imbalance: float
    why: str
    swaps: int = 0
    bytes_moved: float = 0.0
    last_swap: Plan | None = None
    realised: float | None = None  # by the first snapshot after the last swap; the plan holds the prediction
    errors: dict[str, int] = field(default_factory=dict)


class Controller:
    """One query's controller. Call it from one thread.

    `policy` is a name or a function; `splits` says how wide keys of a join are, if they may be split;
    `clock` gives seconds and may be simulated; `where` names the controller in the log.
    """

    def __init__(
        self,
        table: Table,
        policy: str | Policy = "mixed",
        *,
        limits: Limits | None = None,
        pace: Pace | None = None,
        cost: SwapCost | None = None,
        splits: SplitPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        where: str = "the table in force",
    ) -> None:
        self.table = table
        self.limits = limits or Limits()
        self.pace = pace or Pace()
        self.cost = cost or SwapCost()
        self._policy = policies.get(policy) if isinstance(policy, str) else policy
        self._splits = splits
        self._clock = clock
        self._pending: PendingSwap | None = None
        self._spent: deque[tuple[float, float]] = deque()  # (when, bytes) of the swaps of the last hour
        self._rest_until = -math.inf
        self._last_batch = -1
        self._hot = self._calm = 0
        self._swapped_at = -1  # the newest batch seen when the last swap came into force
        self._lasts: float | None = None  # batches that swaps lasted so far, on average
        self.payback = Payback()
        self._troubles = Troubles(where)
        self._status = ControllerStatus(table.epoch, len(table), 0.0, "no snapshot yet")

    def observe(
        self, snapshot: Snapshot, *, clock: Clock | None = None, look_seconds: float | None = None
    ) -> Decision:
        """Decides what to do after this snapshot. Never raises because of what is in it, or of what the
        policy does. `clock` says how long work takes; without one each partition has a slot of its own.

        With `look_seconds` the snapshot is of the very batch that a swap would level, and took so long to
        make: it needs no patience and no rest, but to be worth both the swap and the look."""
        try:
            decision = self._unfit(snapshot) or self._decide(
                snapshot, clock or Clock.one_slot_each(snapshot.partitions), look_seconds
            )
        except Exception as error:
            self._troubles.note(error)
            decision = Decision("stay", f"error: {error}")
        self._status = replace(self._status, why=decision.why)
        return decision

    def published(self, epoch: int, batch: int) -> None:
        """The swap decided on is pinned to this batch, under this epoch."""
        if self._pending is None:
            raise PolicyError(f"epoch {epoch} was published, and no swap was decided on. Publish decisions.")
        self._pending = replace(self._pending, epoch=epoch, batch=batch)

    @property
    def pending(self) -> PendingSwap | None:
        """The published swap whose batch has not been reported yet."""
        return self._pending if self._pending is not None and self._pending.epoch >= 0 else None

    def finished(self, epoch: int, seconds: float) -> None:
        """The swap is in force under the epoch that it was published with; its batch took `seconds` longer
        than it should."""
        pending = self._settle_pending(epoch)
        plan = pending.plan
        if pending.must_pay:
            self.payback.swapped(pending.batch, seconds)
        self.table = plan.table if plan.table.epoch == epoch else plan.table.with_epoch(epoch)
        self.cost.learn(plan, seconds)
        if self._swapped_at >= 0:
            self._lasts = self._expected_life()
        self._swapped_at = self._last_batch
        self._spent.append((self._clock(), plan.bytes_moved))
        self._status = replace(
            self._status,
            epoch=epoch,
            entries=len(plan.table),
            swaps=self._status.swaps + 1,
            bytes_moved=self._status.bytes_moved + plan.bytes_moved,
            last_swap=plan,
            realised=None,
        )

    def failed(self, epoch: int, why: str) -> None:
        """The swap did not happen: the old table stays in force, nothing was moved."""
        self._settle_pending(epoch)
        self._troubles.note(PolicyError(f"the swap to epoch {epoch} failed: {why}"))

    def split_no_more(self) -> None:
        """Splits were refused: from now on keys are moved whole. Those that are split already stay so."""
        self._splits = None

    def adopt(self, table: Table) -> None:
        """Another table is in force than this controller's own, published by hand for example: go on from
        there."""
        if self._pending is not None:
            raise PolicyError(
                f"epoch {table.epoch} cannot be adopted while a swap is under way. Report first how the swap "
                "ended."
            )
        self.table, self._hot, self._calm, self._swapped_at = table, 0, 0, self._last_batch
        self._status = replace(self._status, epoch=table.epoch, entries=len(table))

    @property
    def status(self) -> ControllerStatus:
        return replace(self._status, errors=self._troubles.counts)

    # -- deciding --------------------------------------------------------------------------------------------

    def _unfit(self, snapshot: Snapshot) -> Decision | None:
        """Snapshots that say nothing about now: seen before, routed by another table, or without any work."""
        newest = max(snapshot.batches, default=self._last_batch + 1)
        if newest <= self._last_batch:
            return Decision("stay", f"old: batch {newest} was seen already")
        self._last_batch = newest
        if snapshot.epoch != self.table.epoch or snapshot.partitions != self.table.partitions:
            return Decision(
                "stay",
                f"late: epoch {snapshot.epoch} routed this snapshot, epoch {self.table.epoch} is in force",
            )
        if not snapshot.loads.any():
            return Decision("stay", "idle: no work in this snapshot")
        return None

    def _decide(self, snapshot: Snapshot, clock: Clock, look_seconds: float | None) -> Decision:
        now, ahead = self._clock(), look_seconds is not None
        work = self._work(snapshot, snapshot.loads)
        imbalance = clock.lost(work)
        self._look(imbalance)
        if self._pending is not None:
            return Decision(
                "stay", f"unfinished: the swap to epoch {self._pending.plan.table.epoch} is under way"
            )
        if now < self._rest_until and not ahead:
            return Decision("stay", f"resting: {self._rest_until - now:.0f} s left after the last swap")
        if self._hot >= (1 if ahead else self.pace.patience):
            return self._left_alone() or self._best(snapshot, clock, now, look_seconds or 0.0)
        if self._calm >= self.pace.calm and (len(self.table.move_hashes) or self._may_narrow(snapshot)):
            return self._take_back(snapshot, clock, now)
        if imbalance > self.limits.max_imbalance:
            return Decision(
                "stay", f"waiting: imbalance {imbalance:.3f} seen {self._hot} of {self.pace.patience} times"
            )
        return Decision("stay", f"level: imbalance {imbalance:.3f} is within {self.limits.max_imbalance:.3f}")

    def _left_alone(self) -> Decision | None:
        """Where swaps have not paid."""
        why = self.payback.why(self._last_batch)
        return Decision("stay", why) if why else None

    def _look(self, imbalance: float) -> None:
        above = imbalance > self.limits.max_imbalance
        self._hot, self._calm = (self._hot + 1, 0) if above else (0, self._calm + 1)
        first = self._status.last_swap is not None and self._status.realised is None and self._pending is None
        self._status = replace(
            self._status, imbalance=imbalance, realised=imbalance if first else self._status.realised
        )

    def _work(self, snapshot: Snapshot, loads: Floats) -> Floats:
        """Seconds of one batch, from loads of the whole window."""
        return loads * self.pace.seconds_per_cost / max(1, len(snapshot.batches))

    def _best(self, snapshot: Snapshot, clock: Clock, now: float, look_seconds: float) -> Decision:
        """The best of the policy's plans. Where the scheduler levels many partitions on few slots, a plan
        that levels them less moves less, and may end as soon."""
        crowded = clock.slots.total < snapshot.partitions
        ways = [(self._policy, looser) for looser in (LOOSER if crowded else LOOSER[:1])]
        if self._splits is not None and snapshot.sides:
            ways.append((self._with_splits(self._splits, snapshot, clock), 1.0))
        found: tuple[float, Decision] | None = None
        for policy, looser in ways:
            plan = self._plan(policy, snapshot, now, looser)
            worth, decision = self._judge(plan, snapshot, clock, look_seconds)
            if found is None or worth > found[0]:
                found = worth, decision
        assert found is not None
        return self._swap(found[1])

    def _with_splits(self, splits: SplitPolicy, snapshot: Snapshot, clock: Clock) -> Policy:
        """The policy, and beside its moves the splits that make the tasks shorter by the clock."""
        return partial(
            split_and_move,
            splits=splits,
            moves=self._policy,
            tasks=self._tasks(snapshot, clock),
            slots=clock.slots.total,
        )

    def _may_narrow(self, snapshot: Snapshot) -> bool:
        return self._splits is not None and bool(snapshot.sides) and self.table.has_splits

    def _plan(self, policy: Policy, snapshot: Snapshot, now: float, looser: float = 1.0) -> Plan:
        while self._spent and self._spent[0][0] <= now - HOUR_SECONDS:
            self._spent.popleft()
        left = max(0.0, self.pace.hour_bytes - sum(size for _, size in self._spent))
        budget = min(self.limits.max_bytes, self.pace.swap_bytes, left)
        tolerance = self.pace.aim * self.limits.max_imbalance * looser
        limits = replace(self.limits, max_imbalance=tolerance, max_bytes=budget)
        return _checked(policy(snapshot, self.table, limits), self.table, limits)

    def _judge(
        self, plan: Plan, snapshot: Snapshot, clock: Clock, look_seconds: float
    ) -> tuple[float, Decision]:
        """A plan becomes a swap if what it gains over the horizon exceeds what it costs; with the
        difference."""
        if not plan.changes:
            return -math.inf, Decision("stay", "; ".join(("nothing better was found", *plan.reasons)), plan)
        before = self._work(snapshot, snapshot.loads)
        after = self._work(snapshot, snapshot.loads_under(self.table, plan.table))
        batches = min(self.pace.horizon_batches, self._expected_life())
        gain = (clock.tasks(before) - clock.tasks(after)) * batches
        cost = self.cost.guess(plan) + look_seconds
        figures = clock.lost(before), clock.lost(after)
        if gain <= cost:
            why = f"too dear: {gain:.2f} s to gain over {batches:.0f} batches, {cost:.2f} s to pay"
            return gain - cost, Decision("stay", why, plan, *figures)
        why = f"gain: {gain:.2f} s over {batches:.0f} batches for {cost:.2f} s"
        return gain - cost, Decision("swap", why, plan, *figures)

    def _expected_life(self) -> float:
        """For how many batches a swap made now would last, by how long those before it did: imbalance that
        comes back at once, because the keys drift or because it was noise, is not worth paying for again and
        again."""
        if self._swapped_at < 0:
            return float(self.pace.horizon_batches)
        lasted = float(max(1, self._last_batch - self._swapped_at))
        return lasted if self._lasts is None else (self._lasts + lasted) / 2

    def _take_back(self, snapshot: Snapshot, clock: Clock, now: float) -> Decision:
        narrow = self._may_narrow(snapshot)
        plan = self._plan(partial(self._narrowed, clock) if narrow else take_back, snapshot, now)
        if not plan.changes:
            return Decision(
                "stay", f"standing down: level, and every one of {len(self.table)} entries is needed", plan
            )
        both = snapshot.loads, snapshot.loads_under(self.table, plan.table)
        loads = (self._work(snapshot, loads) for loads in both)
        narrower = len(plan.split_changes)
        what = f"{counted(narrower, 'split')} narrower" if narrower else f"{len(plan.moves)} entries go home"
        why = f"standing down: {what}"
        return self._swap(Decision("swap", why, plan, *map(clock.lost, loads)), must_pay=False)

    def _narrowed(self, clock: Clock, snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
        """Splits go back before moves do: each of them costs replicas in every batch."""
        narrower = take_splits_back(snapshot, table, limits, self._tasks(snapshot, clock))
        return narrower or take_back(snapshot, table, limits)

    def _tasks(self, snapshot: Snapshot, clock: Clock) -> Callable[[Floats], float]:
        """How long the tasks of one batch take, from loads of the whole window."""
        return lambda loads: clock.tasks(self._work(snapshot, loads))

    def _swap(self, decision: Decision, must_pay: bool = True) -> Decision:
        if decision.action == "swap" and decision.plan is not None:
            self._pending = PendingSwap(
                decision.plan, decision.why, decision.before, decision.predicted, must_pay
            )
        return decision

    def _settle_pending(self, epoch: int) -> PendingSwap:
        pending = self._pending
        if pending is None or epoch <= self.table.epoch:
            raise PolicyError(
                f"no swap to epoch {epoch} is under way. Report each swap once, with the epoch it was given."
            )
        self._pending, self._hot, self._calm = None, 0, 0
        self._rest_until = self._clock() + self.pace.cooldown_seconds
        return pending


def _checked(plan: Plan, table: Table, limits: Limits) -> Plan:
    """The plan, if it can be published after this table; policies of users are not trusted to keep the
    limits."""
    if not isinstance(plan, Plan):
        raise PolicyError(f"the policy returned {type(plan).__name__}. A policy returns a Plan.")
    if plan.table.partitions != table.partitions:
        raise PolicyError(
            f"the plan's table has {plan.table.partitions} partitions, the query {table.partitions}. Keep "
            "the number."
        )
    if plan.changes and plan.table.epoch <= table.epoch:
        raise PolicyError(
            f"the plan's table has epoch {plan.table.epoch}, not above {table.epoch}. Count epochs up."
        )
    if plan.changes and len(plan.table) > max(limits.max_entries, len(table)):
        raise PolicyError(
            f"the plan's table has {len(plan.table)} entries, {limits.max_entries} are allowed. Keep the "
            "limit."
        )
    if plan.bytes_moved > limits.max_bytes:
        raise PolicyError(
            f"the plan moves {plan.bytes_moved:.0f} bytes, {limits.max_bytes:.0f} are allowed. Keep the "
            "limit."
        )
    return plan
