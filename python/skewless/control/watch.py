"""One run of one query under the loop's eyes: its batches go to a controller, whose swaps are published and
reported back.

Separate from the loop, which knows all queries and the thread, and from the controller, which knows neither
batches nor a gateway. It knows no Spark: what it calls is a `QueryGateway`, in tests a few lines of Python.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from skewless.control.clock import Timekeeper
from skewless.control.controller import Controller, Decision, PendingSwap
from skewless.control.costs import snapshot_of
from skewless.control.foresight import Foresight
from skewless.control.memory import batch_record, split_changes, split_records
from skewless.control.observed import ObservedBatch
from skewless.control.settings import Settings
from skewless.control.swap_cost import SwapCost
from skewless.control.table_change import TableChange
from skewless.control.troubles import Backoff, Troubles, words_of
from skewless.errors import NotYetError, QueryError, TableError
from skewless.model.plan import Plan, PlannedSplit
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.report.records import (
    KEPT_BATCHES,
    KEPT_KEYS,
    KEPT_SWAPS,
    KEPT_VALUES,
    BatchRecord,
    QueryRecord,
    SplitRecord,
    SwapRecord,
    usual_ms,
)

log = logging.getLogger("skewless")

BY_HAND = "by hand: tables are published with balancer.publish"
COULD_SPLIT = (
    "one key of its join has more than a partition's fair share; "
    'skewless.balance(..., splits="auto") could split it'
)
EXCLUDED = "left alone: excluded by balance_only or exclude"
AHEAD_DECAY = 1e-6  # in a snapshot of what is ahead, earlier batches say what a row costs, and no more


class QueryGateway(Protocol):
    """What is asked of the JVM about one query; `gateway.Gateway` is the real one."""

    def newest(self, query_id: str, /) -> int: ...
    def watch(self, query: Any, plan_wait_ms: int, look_ahead: bool, /) -> None: ...
    def observed(self, query_id: str, after: int, /) -> list[ObservedBatch]: ...
    def upcoming(self, query_id: str, /) -> ObservedBatch | None: ...
    def decided(self, query_id: str, batch: int, /) -> None: ...
    def publish(self, query: Any, table: bytes, /) -> tuple[int, int]: ...
    def latest(self, query: Any, /) -> bytes | None: ...
    def table_at(self, query: Any, batch: int, /) -> bytes | None: ...
    def unwatch_query(self, query: Any, /) -> None: ...
    def obstacle(self, query: Any, /) -> str | None: ...
    def swaps(self, query: Any, /) -> list[dict[str, Any]]: ...


class Watch:
    """One run of a query; `earlier` is the watch of its run before, whose memory is taken over; `foresight`
    stands in for the forecast that the settings name. Call it from one thread."""

    def __init__(
        self,
        query: Any,
        query_id: str,
        name: str,
        gateway: QueryGateway,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        earlier: Watch | None = None,
        closed: Callable[[], bool] = lambda: False,
        foresight: Foresight | None = None,
    ) -> None:
        self.query, self.query_id, self.name, self.running = query, query_id, name, True
        self.run_id, self.title = str(query.runId), name or query_id
        self.wanted = True  # by the user
        self.doing = "asking Spark"  # at this moment, for people
        self._closed = closed  # whether the loop was asked to stop
        self._gateway, self._settings, self._clock = gateway, settings, clock
        self._controller: Controller | None = None
        self._recent: deque[ObservedBatch] = deque(maxlen=settings.window)
        self._timed: ObservedBatch | None = None  # the last batch that was no swap's own
        self._ahead = -1  # the newest batch that was seen before it ran
        self._tables: dict[int, Table] = {}  # that routed the recent batches, by epoch
        self._publishing = Backoff(clock)
        self._left_alone = self._splits_refused = False
        self._watched: bool | None = None  # whether with a look ahead; None: not watched yet
        self._first_look = True
        self._first_batch: int | None = None
        self._unlogged: SwapRecord | None = None
        self._obstacle: str | None = None  # why no table can be published in this run
        self._knows_obstacle = False
        self._planned: dict[int, PlannedSplit] = {}  # what the plans said of the keys that are split
        self._splits: tuple[SplitRecord, ...] = ()
        self._decided_on: float | None = None  # the imbalance
        self._why = "no batch with a routed exchange yet"
        if earlier is None:
            self._last = -1
            self._foresight = foresight or Foresight(settings.forecast, query_id, settings.forecast_folder)
            self._batches: deque[BatchRecord] = deque(maxlen=KEPT_BATCHES)
            self._swaps: deque[SwapRecord] = deque(maxlen=KEPT_SWAPS)
            self._values: dict[int, str] = {}
            self._cost, self._times = SwapCost(), Timekeeper()
            self._last_change: TableChange | None = None
            self.troubles = Troubles(f"query {self.title}")
        else:
            self._last, self._batches, self._swaps = earlier._last, earlier._batches, earlier._swaps
            self._values, self._cost, self.troubles = earlier._values, earlier._cost, earlier.troubles
            self._times, self._last_change = Timekeeper(), earlier._last_change
            self._foresight = earlier._foresight
            self.troubles.absorb({} if earlier._controller is None else earlier._controller.status.errors)

    def step(self) -> None:
        """Takes in the batches committed since the last step. Batches found at the first look are remembered
        but not acted on: they may be of an earlier run, and a table is published only to a run that has
        planned a batch."""
        self._watch()
        seen = -1
        try:
            seen = self._gateway.newest(self.query_id) if self._settings.wait_ms else -1
            upcoming = self._upcoming(seen)
            seen = seen if upcoming is None else upcoming.batch
            self._ask_for_obstacle()
            for batch in self._fresh():
                self._take(batch)
                self._ask_for_obstacle()
                # A batch that was seen ahead is decided on: the next one will be seen ahead, too.
                if not self._first_look and batch.batch > self._ahead:
                    self._decide(batch)
            if (
                upcoming is not None
                and upcoming.batch > max(self._ahead, self._last)
                and not self._first_look
            ):
                self._ahead = upcoming.batch
                self._decide(upcoming)
            self._first_look = False
        finally:
            if self._settings.wait_ms:
                self._gateway.decided(self.query_id, seen)

    def _ask_for_obstacle(self) -> None:
        """Why this run can take no table is asked until the JVM knows a reason, and again after the first
        batch that is observed: what is planned inside foreachBatch shows only then."""
        seen = self._first_batch is not None
        if self._knows_obstacle or (self._obstacle is not None and not seen):
            return
        self._knows_obstacle = seen
        found = self._gateway.obstacle(self.query)
        if found is not None:
            self._why = f"cannot be balanced: {found}"
            if found != self._obstacle:
                log.warning("query %s cannot be balanced: %s", self.title, found)
        self._obstacle, self._left_alone = found, found is not None

    def _watch(self) -> None:
        """Has the JVM count this run's keys; again only when something about it changes."""
        if not self.wanted or self._settings.by_hand:
            if self._watched is not None:
                self._gateway.unwatch_query(self.query)
            self._watched = None
        elif self._watched != self._looks_ahead:
            self._gateway.watch(self.query, self._settings.wait_ms, self._looks_ahead)
            self._watched = self._looks_ahead

    def _upcoming(self, newest: int) -> ObservedBatch | None:
        """The batch that is about to be planned, once the one before it is known to be committed: how a swap
        in it went must be settled first. That commit is news, and leads to another step."""
        found = self._gateway.upcoming(self.query_id) if self._looks_ahead else None
        return found if found is not None and found.batch == newest + 1 else None

    @property
    def _looks_ahead(self) -> bool:
        return self._settings.look_ahead and not self._left_alone

    def end(self, why: str, look: bool = True) -> None:
        """The run is over: a last look for batches, then no swap is awaited any more. One that is published
        keeps its pin, and takes effect when the query is started again."""
        try:
            for batch in self._fresh() if look else ():
                self._take(batch)
        except Exception as error:
            self.troubles.note(error)
        if (pending := self._pending) is not None:
            why += f"; epoch {pending.epoch} waits for batch {pending.batch}, should it start again"
        self._log_swap()
        self._foresight.close()
        self.running, self._why = False, why

    @property
    def _pending(self) -> PendingSwap | None:
        """The swap whose first batch has not been seen yet."""
        return None if self._controller is None else self._controller.pending

    def record(self) -> QueryRecord:
        """All that is known now, as a value."""
        status = None if self._controller is None else self._controller.status
        errors = dict(Counter(self.troubles.counts) + Counter({} if status is None else status.errors))
        epoch, entries = (0, 0) if status is None else (status.epoch, status.entries)
        batches, swaps = tuple(self._batches), tuple(self._swaps)
        return QueryRecord(
            self.query_id, self.name, self.running, epoch, entries, self._why, batches, swaps, errors,
            forecast=self._foresight.words, splits=self._splits, decided_on=self._decided_on,
        )  # fmt: skip

    # -- batches ---------------------------------------------------------------------------------------------

    def _fresh(self) -> list[ObservedBatch]:
        """New batches in order, each once, whatever the JVM sends again."""
        observed = self._gateway.observed(self.query_id, self._last)
        found = {batch.batch: batch for batch in observed if batch.batch > self._last}
        return [found[number] for number in sorted(found)]

    def _take(self, batch: ObservedBatch) -> None:
        """Remembers a batch and settles what it proves about tables."""
        self._last = batch.batch
        self._learn(batch)
        if self._first_batch is None:
            self._first_batch = batch.batch
        controller = self._controller or self._start(batch)
        predicted = self._times.predict_ms(batch)
        own_swap = self._settle(controller, batch, predicted)
        saved = self._saved_ms(batch)
        if not own_swap:
            self._times.learn(batch)
        if saved is not None:
            late = 0.0 if own_swap or predicted is None else batch.batch_ms - predicted
            controller.payback.add(saved / 1000, late / 1000)
        clock = self._times.clock(batch.partitions)
        record = batch_record(batch, len(controller.table), self._values, clock, predicted, saved)
        self._batches.append(self._foresight.told(record))
        self._foresight.see(batch)
        if not own_swap and batch.rows.any():
            self._log_swap()
        if batch.rows.any():
            self._splits = split_records(controller.table, batch, self._planned, self._values)
        if batch.rows.any() and batch.epoch == controller.table.epoch:
            # The task times of a swap's own batch hold the migration: its rows are a measure of what is to
            # come, they are not.
            self._recent.append(replace(batch, run_ms=np.full(batch.partitions, -1)) if own_swap else batch)
            self._timed = self._timed if own_swap else batch
            self._tables[batch.epoch] = controller.table
            known = {seen.epoch for seen in (self._timed, *self._recent) if seen is not None}
            self._tables = {epoch: table for epoch, table in self._tables.items() if epoch in known}

    def _saved_ms(self, batch: ObservedBatch) -> float | None:
        """What the last swap saved in this batch; the keys that it moved or split and that were not counted
        saved nothing."""
        if self._last_change is None or self._last_change.epoch != batch.epoch or not batch.rows.any():
            return None
        return self._times.saved_ms(batch, self._last_change.rows_before(batch))

    def _learn(self, batch: ObservedBatch) -> None:
        """Remembers what hashes stand for, the newest ones."""
        for key_hash, value in batch.key_values.items():
            self._values.pop(key_hash, None)
            self._values[key_hash] = value
        for key_hash in list(self._values)[:-KEPT_VALUES]:
            del self._values[key_hash]

    def _start(self, batch: ObservedBatch) -> Controller:
        settings = self._settings
        self._controller = Controller(
            self._newest_table(batch),
            settings.policy or "mixed",  # by hand nothing is planned
            limits=settings.limits,
            pace=settings.pace,
            cost=self._cost,
            splits=None if self._splits_refused else settings.split_policy,
            clock=self._clock,
            where=f"query {self.title}: the table in force",
        )
        return self._controller

    def _newest_table(self, batch: ObservedBatch) -> Table:
        by_hand = self._settings.by_hand
        found = (
            self._gateway.table_at(self.query, batch.batch) if by_hand else self._gateway.latest(self.query)
        )
        table = Table(batch.partitions) if found is None else Table.decode(found)
        # An exchange of another number of partitions is hashed plainly, under the same epoch.
        return table if table.partitions == batch.partitions else Table(batch.partitions, epoch=table.epoch)

    def _settle(self, controller: Controller, batch: ObservedBatch, predicted: float | None) -> bool:
        """Whether the batch is a swap's own."""
        expected = usual_ms(self._steady()) if predicted is None else predicted
        pending = self._pending
        if pending is not None and batch.epoch == pending.epoch:
            self._finish(controller, pending, batch, expected)
            return True
        if pending is not None and batch.epoch > pending.epoch:
            self._fail(
                controller,
                pending,
                f"batch {batch.batch} ran under epoch {batch.epoch}, which was published by someone else",
            )
        elif pending is not None and batch.batch >= pending.batch and batch.rows.any():
            self._fail(controller, pending, f"batch {batch.batch} still ran under epoch {batch.epoch}")
        if self._pending is None and (
            batch.epoch > controller.table.epoch or batch.partitions != controller.table.partitions
        ):
            return self._adopt(controller, batch, expected)
        return False

    def _adopt(self, controller: Controller, batch: ObservedBatch, expected: float | None) -> bool:
        """Goes on from a table that someone else published."""
        old, new = controller.table, self._newest_table(batch)
        controller.adopt(new)
        if new.epoch != batch.epoch or old.partitions != new.partitions:
            return False
        before = next((known.imbalance for known in reversed(self._batches) if known.rows), None)
        change = TableChange(new.epoch, old, new)
        by_hand = "published by hand"
        self._remember(
            batch, change, change.splits, by_hand, before, None, self._moved_by(new.epoch), expected
        )
        return True

    # -- swaps -----------------------------------------------------------------------------------------------

    def _decide(self, batch: ObservedBatch) -> None:
        controller, wait = self._controller, self._publishing.seconds_left
        if controller is None or self._left_alone or not self._may_act():
            return
        if wait > 0:
            self._why = f"backing off: {wait:.0f} s until a table is published again, after an error"
            return
        if not batch.rows.any():
            self._why = f"idle: batch {batch.batch} had no rows"
            return
        if batch.epoch != controller.table.epoch:
            self._why = (
                f"waiting: batch {batch.batch} ran under epoch {batch.epoch}, "
                f"epoch {controller.table.epoch} is to come"
            )
            return
        ahead = batch.batch > self._last
        if ahead and self._timed is None:
            self._why = f"waiting: batch {batch.batch} is seen, but not yet what a row costs"
            return
        try:
            snapshot = self._snapshot(controller.table, batch if ahead else None)
        except Exception as error:
            self.troubles.note(error)
            self._why = f"error: {words_of(error)}"
            return
        clock = self._times.clock(batch.partitions)
        self.doing = f"planning (policy {self._settings.policy_name})"
        decision = controller.observe(
            snapshot,
            clock=clock if self._settings.cost is None else replace(clock, task_seconds=0.0),
            look_seconds=batch.batch_ms / 1000 if ahead else None,
        )
        self.doing = "asking Spark"
        self._decided_on = controller.status.imbalance
        self._why = decision.why + self._could_split(snapshot, controller.status.imbalance)
        if decision.action == "swap" and decision.plan is not None:
            self._publish(controller, decision, decision.plan)

    def _could_split(self, snapshot: Snapshot, imbalance: float) -> str:
        """What to say if a key of a join is too heavy for any move, and its user has not asked for splits."""
        most = 1 + self._settings.limits.max_imbalance
        if self._settings.split_policy or not snapshot.sides or imbalance < most - 1:
            return ""
        if snapshot.costs.max(initial=0.0) <= most * snapshot.loads.mean():
            return ""
        return f"; {COULD_SPLIT}"

    def _may_act(self) -> bool:
        """Whether the user wants tables made for this query, now."""
        if self._settings.by_hand or not self.wanted:
            self._why = BY_HAND if self._settings.by_hand else EXCLUDED
        return self.wanted and not self._settings.by_hand and not self._closed()

    def _snapshot(self, table: Table, ahead: ObservedBatch | None) -> Snapshot:
        batches, decay, foreseen = list(self._recent), self._settings.decay, self._foresight.foreseen
        if ahead is not None:
            timed = [] if self._timed is None or self._timed in batches else [self._timed]
            batches, decay, foreseen = [*timed, *batches, ahead], AHEAD_DECAY, None
        return snapshot_of(
            batches,
            table,
            self._settings.cost,
            decay=decay,
            earlier=self._tables,
            foreseen=foreseen,
        )

    def _publish(self, controller: Controller, decision: Decision, plan: Plan) -> None:
        if self._closed():
            self._why = "the loop was stopped while it planned"
            return
        try:
            epoch, first = self._gateway.publish(self.query, plan.table.encode())
        except Exception as error:
            controller.failed(plan.table.epoch, words_of(error))
            refused = isinstance(error, (QueryError, TableError)) and not isinstance(error, NotYetError)
            if refused and any(len(split.after) > 1 for split in plan.split_changes):
                self._split_no_more(controller, error)
                return
            self._publishing.failed()
            self._left_alone = refused and isinstance(error, QueryError)
            self._why = f"left alone: {error}" if self._left_alone else f"error: {words_of(error)}"
            return
        self._publishing.succeeded()
        controller.published(epoch, first)
        self._why = f"swapping to epoch {epoch} with batch {first}; {decision.why}"

    def _split_no_more(self, controller: Controller, error: Exception) -> None:
        """A query that refuses a split can still have its keys moved."""
        controller.split_no_more()
        self._splits_refused = True
        self._why = f"splits no key from now on: {words_of(error)}"

    def _finish(
        self, controller: Controller, pending: PendingSwap, batch: ObservedBatch, expected: float | None
    ) -> None:
        moved = self._moved_by(pending.epoch)
        change = TableChange(pending.epoch, controller.table, pending.plan.table)
        longer_ms = 0.0 if expected is None else max(0.0, batch.batch_ms - expected)
        controller.finished(pending.epoch, max(moved.get("exportMs", 0.0), longer_ms) / 1000)
        self._why = f"swapped: epoch {pending.epoch} is in force since batch {batch.batch}; {pending.why}"
        self._remember(
            batch, change, pending.plan.split_changes, pending.why, pending.before, pending.predicted, moved,
            expected,
        )  # fmt: skip

    def _moved_by(self, epoch: int) -> dict[str, Any]:
        """What the JVM recorded of a swap; nothing for a query without state."""
        try:
            return next((swap for swap in self._gateway.swaps(self.query) if swap.get("epoch") == epoch), {})
        except Exception as error:
            self.troubles.note(error)
            return {}

    def _fail(self, controller: Controller, pending: PendingSwap, why: str) -> None:
        controller.failed(pending.epoch, why)
        self._why = f"error: the swap to epoch {pending.epoch} failed: {why}"

    def _remember(
        self,
        batch: ObservedBatch,
        change: TableChange,
        splits: Iterable[PlannedSplit],
        why: str,
        before: float | None,
        predicted: float | None,
        moved: dict[str, Any],
        expected: float | None,
    ) -> None:
        hashes, splits = change.moved, tuple(splits)
        self._last_change = change
        self._planned |= {split.key_hash: split for split in splits}
        rows = dict(zip(batch.key_hashes.tolist(), batch.key_rows.tolist(), strict=True))
        hottest = sorted(hashes, key=lambda key_hash: -rows.get(key_hash, 0))[:KEPT_KEYS]
        values = tuple(self._values.get(key_hash) for key_hash in hottest)
        self._log_swap()
        self._unlogged = SwapRecord(
            batch=batch.batch,
            epoch=change.epoch,
            key_hashes=tuple(hottest),
            moved=len(hashes),
            why=why,
            batch_ms=batch.batch_ms,
            expected_ms=expected,
            before=before,
            predicted=predicted,
            state_rows=moved.get("rows"),
            bytes_moved=moved.get("bytes"),
            export_ms=moved.get("exportMs"),
            key_values=values if any(value is not None for value in values) else (),
            splits=split_changes(splits, self._values),
        )
        self._swaps.append(self._unlogged)

    def _steady(self) -> list[BatchRecord]:
        """The batches to measure others by: not a run's first, which starts workers and loads classes, if
        there are more."""
        return [batch for batch in self._batches if batch.batch != self._first_batch] or list(self._batches)

    def _log_swap(self) -> None:
        """Logs the last swap once, when the first batch after it shows what it gained, or when there will be
        none."""
        if self._unlogged is not None:
            log.info("query %s: %s", self.title, self.record().sentence(self._unlogged))
        self._unlogged = None
