"""The part of the loop that places: it levels the partitions of all its queries over the executors, and
empties executors that are to leave.

Separate from the watches because executors are shared: what one query's tasks take is missing to another's.
A plan is a wish, so nothing is awaited and nothing can be lost. Everything that fails leaves the wishes that
were there. It knows no Spark: what it calls is a `PlacerGateway`.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from skewless.control.holdings import Holdings
from skewless.control.observed import ObservedBatch
from skewless.control.placement_pace import PlacementPace
from skewless.control.placement_worth import Places, Worth
from skewless.control.troubles import Troubles
from skewless.control.warmer import Warmer, WarmingGateway
from skewless.errors import NotYetError, QueryError
from skewless.model.placement import NOWHERE, Groups, Nodes, Placement, PlacementLimits, PlacementPlan
from skewless.model.snapshot import Floats
from skewless.policies.groups import PlacementPolicy, seat
from skewless.report.placing import KEPT_PLACED, ExecutorRecord, PlacedBatch, PlacingRecord
from skewless.wording import counted

IDLE = "no batch of a stateful query has been seen yet"


class PlacerGateway(WarmingGateway, Protocol):
    """What placing asks of the JVM."""

    def executors(self) -> dict[str, int]: ...
    def newest(self, query_id: str, /) -> int: ...
    def observed(self, query_id: str, after: int, /) -> list[ObservedBatch]: ...
    def place(self, query: Any, wishes: dict[int, str], /) -> None: ...


def empty_only(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
    """Nothing is levelled: groups of leaving nodes go, all others stay."""
    return PlacementPlan(placement, seat(placement, limits), 0.0)


class Placer:
    """`step` from one thread; `leaving`, `record` and `holding` may be used from any."""

    def __init__(
        self,
        gateway: PlacerGateway,
        policy: PlacementPolicy | None,
        name: str,
        pace: PlacementPace,
        clock: Callable[[], float] = time.monotonic,
        closed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._gateway, self._policy, self._name, self._pace = gateway, policy, name, pace
        self._clock, self._closed = clock, closed
        self.leaving: frozenset[str] = frozenset()  # replaced, never changed: two threads look at it
        self._one_leaving = threading.Lock()
        self.troubles = Troubles("placement")
        self._warmer = Warmer(gateway, self.troubles)
        self.scaling = ""  # what a scaler does, in words
        self.busy: dict[str, int] = {}  # executor -> how long its tasks have run, in ms
        self._executors: dict[str, int] = {}
        self._holdings: dict[str, Holdings] = {}  # by query id
        self._emptied: frozenset[str] = frozenset()  # as it was when the last plan was made
        self._uneven = 0  # batches in a row
        self._plans = self._moves = 0
        self._planned: float | None = None
        self._batches: deque[PlacedBatch] = deque(maxlen=KEPT_PLACED)
        self._why = IDLE
        self.record = PlacingRecord(name, IDLE)

    # -- from any thread -------------------------------------------------------------------------------------

    def leave(self, executor: str) -> None:
        """From now on its partitions are planned onto the others."""
        with self._one_leaving:
            self.leaving |= {executor}

    def stay(self, *executors: str) -> None:
        """They may be given partitions again, or are no more."""
        with self._one_leaving:
            self.leaving -= set(executors)

    def holding(self, executor: str) -> list[str]:
        """The queries that have partitions there, or wishes for it."""
        found = [h for h in list(self._holdings.values()) if not h.refused and h.holders]
        return [h.title for h in found if executor in h.holders or executor in h.places]

    @property
    def warming(self) -> frozenset[str]:
        """Executors that have just come, and take no partitions yet."""
        return self._warmer.cold

    def end(self) -> None:
        self._warmer.end()

    def refused(self, query_id: str) -> str:
        """Why a query cannot be placed; empty if it can, as far as is known."""
        known = self._holdings.get(query_id)
        return "" if known is None else known.refused

    # -- on the loop's thread --------------------------------------------------------------------------------

    def step(self, queries: Mapping[str, Any]) -> bool:
        """Takes in new batches, and wishes anew where it pays; whether there was a new batch."""
        self._executors = self._gateway.executors()
        self._warmer.see(self._executors)
        self.stay(*(self.leaving - set(self._executors)))
        self._forget(queries)
        news = False
        for query_id, query in queries.items():
            news |= self._see(query_id, query)
        if news or self.leaving != self._emptied:
            self._emptied = self.leaving
            self._decide(news)
        self._draw()
        return news

    def _forget(self, queries: Mapping[str, Any]) -> None:
        for query_id in [q for q in self._holdings if q not in queries]:
            del self._holdings[query_id]

    def _see(self, query_id: str, query: Any) -> bool:
        known = self._holdings.get(query_id)
        if known is None or known.run_id != str(query.runId):
            title = str(query.name or query_id)
            # one batch back: it may be an earlier run's, and a wish that is wrong for it does no harm
            known = Holdings(query, title, self._gateway.newest(query_id) - 1)
            self._holdings[query_id] = known
        news = False
        for batch in sorted(self._gateway.observed(query_id, known.newest), key=lambda b: b.batch):
            if batch.batch > known.newest:
                news = True
                epoch = known.epoch
                strays = known.take(batch)
                if known.epoch != epoch:
                    self._uneven = 0  # keys first: what is levelled by a table need not be placed
                self.busy = dict(zip(batch.executor_ids, batch.busy_ms.tolist(), strict=False))
                self._note(query_id, known, batch, strays)
                self._follow(known, strays)
        return news

    def _note(self, query_id: str, known: Holdings, batch: ObservedBatch, strays: tuple[int, ...]) -> None:
        placement = self.placement(real=True)
        distance = 0.0 if placement is None else _relative(placement, placement.sources)
        read = float(np.maximum(batch.bytes, 0).sum())
        remote = float(batch.remote_bytes.sum()) / read if read else 0.0
        self._batches.append(
            PlacedBatch(query_id, batch.batch, known.holders, strays, distance, min(1.0, remote))
        )

    def _follow(self, known: Holdings, strays: tuple[int, ...]) -> None:
        """A task that ran elsewhere took its state along: it stays there, rather than being called back."""
        stay = {p: known.holders[p] for p in strays if known.holders[p] in self._takers}
        if stay:
            self._wish(known, {p: e for p, e in known.wishes.items() if e in self._executors} | stay)

    @property
    def _takers(self) -> dict[str, int]:
        away = self.leaving | self.warming
        return {executor: slots for executor, slots in self._executors.items() if executor not in away}

    # -- plans -----------------------------------------------------------------------------------------------

    @property
    def _placed(self) -> list[Holdings]:
        return [h for h in self._holdings.values() if h.holders and not h.refused]

    def placement(self, scaled: float = 1.0, real: bool = False) -> Placement | None:
        """All partitions of all queries on the executors, those with pending wishes where they are wished
        for unless the `real` places are asked for. A load of 100 is a slot that is always busy. None if
        nothing is known yet."""
        executors = {e: n for e, n in self._executors.items() if e not in self.warming}
        holdings = self._placed
        if not executors or not holdings:
            return None
        names = list(executors)
        nodes = Nodes.of(names, list(executors.values()), leaving=tuple(sorted(self.leaving & set(names))))
        at = {name: i for i, name in enumerate(names)}
        where = [at.get(e, NOWHERE) for h in holdings for e in (h.holders if real else h.places)]
        loads = np.concatenate([h.seconds / h.interval for h in holdings]) * 100 * scaled
        return Placement(nodes, Groups.of(range(len(where)), loads, self._costs(), where))

    def _costs(self) -> Floats:
        """Bytes that a move loads; where nobody knows any, a partition counts as one."""
        costs = np.concatenate([h.state_bytes * h.replay for h in self._placed])
        return costs if costs.any() else np.ones(len(costs))

    def limits(self, costs: Floats, frozen: Any) -> PlacementLimits:
        """The budget of one plan; one partition may always move."""
        free = costs[~frozen]
        share = max(self._pace.plan_share * float(costs.sum()), float(free.max(initial=0.0)))
        return PlacementLimits(max_bytes=min(share, self._pace.plan_bytes))

    def _frozen(self) -> Any:
        """Partitions that have moved within the cool-down, or whose last wish has not shown yet."""
        since = self._clock() - self._pace.cooldown_seconds
        return np.array(
            [
                h.pending or h.moved_at.get(p, since) > since
                for h in self._placed
                for p in range(len(h.holders))
            ],
            dtype=np.bool_,
        )

    def _decide(self, news: bool) -> None:
        placement = self.placement()
        if placement is None:
            self._why = IDLE
            return
        if not len(placement.nodes.takers):
            self._why = "no executor may take partitions"
            return
        distance, leaving = _relative(placement, placement.sources), placement.stranded(placement.sources)
        self._uneven = self._uneven + news if distance > self._pace.max_distance else 0
        if not leaving and self._policy is None:
            self._why = "places only what executors that leave hold"
        elif not leaving and distance <= self._pace.max_distance:
            self._why = f"level: the farthest executor is {distance:.0%} of the mean away from it"
        elif not leaving and self._uneven < self._pace.patience:
            self._why = f"patient: uneven in {self._uneven} of {self._pace.patience} batches"
        else:
            self._plan(placement, bool(leaving))

    def _plan(self, placement: Placement, must: bool) -> None:
        frozen = self._frozen()
        if frozen.all():
            self._why = "waiting: every partition has moved lately, or is about to"
            return
        costs = np.asarray(placement.groups.state_bytes)
        limits = self.limits(costs, frozen)
        best, why = None, ""
        worth, policy = Worth(placement, self._placed, self._pace), self._policy
        free = replace(limits, max_bytes=math.inf)
        whole = None if policy is None else lambda: policy(placement, free).targets
        for targets in self._candidates(placement, limits, frozen, must):
            objection, saved = ("", 0.0) if must else worth.of(targets, whole)
            why = why or objection
            if not objection and (best is None or saved > best[0]):
                best = saved, targets
        if best is None:
            self._why = why or "no partition may move within the limits"
        elif not self._closed():
            self._publish(placement, best[1], worth.places(best[1]))

    def _candidates(
        self, placement: Placement, limits: PlacementLimits, frozen: Any, must: bool
    ) -> list[Any]:
        """Targets that move something: all queries levelled together, and each for itself, since their
        batches may run at the same time or not."""
        policy, sources = empty_only if must else self._policy or empty_only, placement.sources
        # what may not move costs more than there is
        held = placement.groups.state_bytes + np.where(frozen, 2 * limits.max_bytes + 1, 0.0)
        groups = replace(placement.groups, state_bytes=held)
        parts = [np.arange(len(sources))]
        if len(self._placed) > 1 and not must:
            ends = np.cumsum([len(h.holders) for h in self._placed])
            parts += np.split(parts[0], ends[:-1])
        each = replace(limits, seconds=limits.seconds / len(parts))
        found = []
        for part in parts:
            plan = policy(Placement(placement.nodes, _some(groups, part)), each)
            targets = sources.copy()
            targets[part] = np.where(frozen[part], sources[part], plan.targets)
            if not np.array_equal(targets, sources):
                found.append(targets)
        return found

    def _publish(self, placement: Placement, targets: Any, places: Places) -> None:
        moved = 0
        for h, after in zip(self._placed, places, strict=True):
            before = h.places
            if before != after and self._wish(h, {p: e for p, e in enumerate(after) if e}):
                changed = [p for p, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
                h.moved_at |= dict.fromkeys(changed, self._clock())
                moved += len(changed)
        if moved:
            self._plans, self._moves, self._uneven = self._plans + 1, self._moves + moved, 0
            self._planned = _relative(placement, np.asarray(targets))
            self._why = f"planned: {counted(moved, 'partition')} to another executor"

    def _wish(self, h: Holdings, wishes: dict[int, str]) -> bool:
        """Whether the wishes are in force; if not, those before are."""
        try:
            self._gateway.place(h.query, wishes)
        except Exception as error:
            self.troubles.note(error)
            if isinstance(error, QueryError) and not isinstance(error, NotYetError):
                h.refused = str(error)
                self._why = f"left alone: {error}"
            else:
                self._why = "an executor went while it was named: planned again with the next batch"
            return False
        h.wished(wishes)
        return True

    # -- telling ---------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        self.record = PlacingRecord(
            self._name,
            self._why,
            tuple(self._drawn(executor, slots) for executor, slots in self._executors.items()),
            tuple(self._batches),
            self._plans,
            self._moves,
            self._planned,
            self.scaling,
            self.troubles.counts,
        )

    def _drawn(self, executor: str, slots: int) -> ExecutorRecord:
        held = sum(h.holders.count(executor) for h in self._placed)
        planned = sum(h.places.count(executor) for h in self._placed)
        busy = sum(
            float((h.seconds * [e == executor for e in h.holders]).sum()) / h.interval for h in self._placed
        )
        state = "leaving" if executor in self.leaving else "warming up" if executor in self.warming else ""
        return ExecutorRecord(executor, slots, held, planned, busy / max(1, slots), state)


def _some(groups: Groups, part: Any) -> Groups:
    return Groups(
        groups.ids[part],
        groups.loads[:, part],
        groups.state_bytes[part],
        groups.nodes[part],
        groups.operators[part],
        groups.resources,
    )


def _relative(placement: Placement, targets: Any) -> float:
    """The load distance as a share of the mean load."""
    return placement.distance(targets) / placement.mean if placement.mean else 0.0
