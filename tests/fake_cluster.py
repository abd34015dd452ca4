"""Executors without a JVM, and queries whose partitions run where they were wished for, where they are, or on
whatever executor is left."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fake_gateway import Clock
from skewless.control.observed import ObservedBatch
from skewless.errors import SettingError

NOTHING = np.empty(0, dtype=np.int32)


@dataclass(eq=False)
class PlacedQuery:
    """`holders` is who runs each partition; `seconds` what its task takes."""

    holders: list[str]
    seconds: list[float]
    id: str = "query-1"
    runId: str = "run-1"  # noqa: N815
    name: str | None = "clicks"
    state_bytes: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    epoch: int = 0
    wishes: dict[int, str] = field(default_factory=dict)
    committed: list[ObservedBatch] = field(default_factory=list)
    placed: list[dict[int, str]] = field(default_factory=list)  # every call that was taken
    ignores_wishes: frozenset[int] = frozenset()


class FakeCluster:
    """`fail` names the calls that raise, with what. `comes` are executors that come when they are asked
    for."""

    def __init__(self, executors: dict[str, int], *queries: PlacedQuery) -> None:
        self.alive, self.queries, self.clock = dict(executors), list(queries), Clock()
        self.busy = dict.fromkeys(executors, 0)
        self.fail: dict[str, BaseException] = {}
        self.comes: list[str] = []
        self.requested: list[int] = []
        self.warmed: list[str] = []
        self.ended: list[str] = []
        self.is_quiet = True  # whether there is a moment without a job
        self.seconds_per_batch = 1.0
        self.fixed: str | None = None  # why executors cannot be changed

    @property
    def by_id(self) -> dict[str, PlacedQuery]:
        return {query.id: query for query in self.queries}

    def run(self, times: int = 1) -> None:
        """A batch of every query."""
        for _ in range(times):
            self.clock.now += self.seconds_per_batch
            for query in self.queries:
                self._run(query)

    def _run(self, query: PlacedQuery) -> None:
        for p, holder in enumerate(query.holders):
            wish = holder if p in query.ignores_wishes else query.wishes.get(p, holder)
            query.holders[p] = next(e for e in (wish, holder, *self.alive) if e in self.alive)
            self.busy[query.holders[p]] += int(1000 * query.seconds[p])
        batch = query.committed[-1].batch + 1 if query.committed else 0
        n, ids = len(query.holders), tuple(self.alive)
        query.committed.append(
            ObservedBatch(
                batch,
                query.epoch,
                int(1000 * self.seconds_per_batch),
                np.full(n, 10),
                np.full(n, 100),
                np.array([int(1000 * s) for s in query.seconds]),
                NOTHING,
                NOTHING,
                partition_state_bytes=np.array(query.state_bytes or [-1] * n),
                executors=np.array([ids.index(e) for e in query.holders]),
                slots=np.array(list(self.alive.values())),
                locality_wait_ms=3000,
                committed_at=self.clock.now,
                executor_ids=ids,
                busy_ms=np.array([self.busy[e] for e in ids]),
                remote_bytes=np.full(n, 50),
                snapshot_versions=np.array(query.snapshots or [-2] * n),
            )
        )

    def active(self) -> list[PlacedQuery]:
        return list(self.queries)

    def kill(self, executor: str) -> None:
        del self.alive[executor]

    # -- what the placer and the scaler ask ------------------------------------------------------------------

    def executors(self) -> dict[str, int]:
        self._may_fail("executors")
        return dict(self.alive)

    def newest(self, query_id: str) -> int:
        found = self.by_id[query_id].committed
        return found[-1].batch if found else -1

    def observed(self, query_id: str, after: int) -> list[ObservedBatch]:
        self._may_fail("observed")
        return [batch for batch in self.by_id[query_id].committed if batch.batch > after]

    def place(self, query: PlacedQuery, wishes: dict[int, str]) -> None:
        self._may_fail("place")
        for executor in wishes.values():
            if executor not in self.alive:
                raise SettingError(f"executor '{executor}' is not alive")
        query.wishes = dict(wishes)
        query.placed.append(dict(wishes))

    def loads(self, query_id: str) -> list[tuple[object, ...]]:
        """(batch, epoch, rows, bytes, run ms, executors) of the newest batch."""
        query = self.by_id[query_id]
        last = query.committed[-1:]
        return [(b.batch, b.epoch, b.rows, b.bytes, b.run_ms, tuple(query.holders)) for b in last]

    def fixed_executors(self) -> str | None:
        return self.fixed

    def request_executors(self, total: int) -> bool:
        self._may_fail("request_executors")
        self.requested.append(total)
        for executor in self.comes[: max(0, total - len(self.alive))]:
            self.alive[executor], self.busy[executor] = 1, 0
            self.comes.remove(executor)
        return True

    def warm_executor(self, executor: str) -> None:
        self._may_fail("warm_executor")
        self.warmed.append(executor)

    def end_executor(self, executor: str, wait_seconds: float) -> bool:
        self._may_fail("end_executor")
        if self.is_quiet:
            self.ended.append(executor)
            self.kill(executor)
        return self.is_quiet

    def _may_fail(self, call: str) -> None:
        if call in self.fail:
            raise self.fail[call]
