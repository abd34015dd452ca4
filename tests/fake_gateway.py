"""A gateway without a JVM: queries whose batches are routed by whatever table was published, as Spark would
route them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skewless.control.observed import ObservedBatch
from skewless.model.table import Table, diff

MS_PER_ROW = 10
LOOK_MS = 50
SKEWED = {0: 40, 2: 40, 4: 10, 6: 10}  # rows by key hash, all at home in partition 0 of 2
LEVEL = {0: 40, 1: 40, 4: 10, 5: 10}


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class FakeQuery:
    """A query with its checkpoint: tables, the batches they are pinned to, and the batches that were
    committed."""

    id: str = "query-1"
    runId: str = "run-1"  # noqa: N815
    name: str | None = "clicks"
    partitions: int = 2
    pins: list[tuple[int, Table]] = field(default_factory=list)
    committed: list[ObservedBatch] = field(default_factory=list)
    swaps: list[dict[str, Any]] = field(default_factory=list)
    values: dict[int, str] = field(default_factory=dict)  # of key hashes, if a task is to show them
    keeps_state: bool = True
    upcoming: ObservedBatch | None = None  # shown before it is planned
    obstacle: str | None = None  # why it takes no table
    swap_ms: int = 100  # that the batch of a swap takes longer
    planned_ahead: int = 0  # batches that a published table comes too late for
    sides: str = ""  # of its join, those that may be split
    right_rows: dict[int, int] = field(default_factory=dict)  # of the rows of each key, those of the right
    lock: Any = field(
        default_factory=threading.RLock
    )  # as in the JVM: no batch is planned while a table is being pinned

    @property
    def next_batch(self) -> int:
        return self.committed[-1].batch + 1 if self.committed else 0

    def table_at(self, batch: int) -> Table:
        return next((table for first, table in reversed(self.pins) if first <= batch), Table(self.partitions))

    def publish(self, table: Table) -> tuple[int, int]:
        with self.lock:
            epoch, first = len(self.pins) + 1, self.next_batch + self.planned_ahead
            self.pins.append((first, table.with_epoch(epoch)))
            return epoch, first

    def run(self, rows: dict[int, int], times: int = 1) -> None:
        """Commits batches with these rows by key hash; a swap's own batch takes `swap_ms` longer."""
        for _ in range(times):
            with self.lock:
                self._run(self.next_batch, rows)

    def show(self, rows: dict[int, int]) -> None:
        """The next batch is about to be planned, and has these rows."""
        hashes, counts = np.array(list(rows), dtype=np.int32), np.array(list(rows.values()), dtype=np.int64)
        table = self.table_at(self.next_batch)
        loads = self._loads(table, hashes, counts)
        nothing = np.full(self.partitions, -1)
        self.upcoming = ObservedBatch(
            self.next_batch, table.epoch, LOOK_MS, loads, 0 * loads, nothing, hashes, counts,
            sides=self.sides, right_rows=self._right(hashes),
        )  # fmt: skip

    def _right(self, hashes: np.ndarray) -> np.ndarray:
        return np.array([self.right_rows.get(h, 0) for h in hashes.tolist()] if self.sides else [])

    def _loads(self, table: Table, hashes: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Row by row, as the exchanges of a join do: one choice among a row's places, and a copy to each
        partition of it."""
        loads = np.zeros(self.partitions, dtype=np.int64)
        for key_hash, count in zip(hashes.tolist(), counts.tolist(), strict=True):
            grid, right = table.split_of(key_hash), self.right_rows.get(key_hash, 0)
            for row in range(count):
                if grid is None:
                    loads[table.targets(key_hash)[0]] += 1
                    continue
                cells = np.reshape(grid.targets, (grid.left_width, grid.right_width))
                chosen = cells[:, row % grid.right_width] if row < right else cells[row % grid.left_width]
                loads[chosen] += 1
        return loads

    def _run(self, batch: int, rows: dict[int, int]) -> None:
        table, before = self.table_at(batch), self.table_at(batch - 1)
        hashes, counts = np.array(list(rows), dtype=np.int32), np.array(list(rows.values()), dtype=np.int64)
        loads = self._loads(table, hashes, counts)
        swapped = table.epoch != before.epoch
        batch_ms = int(loads.max()) * MS_PER_ROW + (self.swap_ms if swapped else 0)
        order = np.argsort(-counts, kind="stable")
        if swapped and self.keeps_state:
            moved = len(diff(before, table))
            record = {
                "batch": batch,
                "epoch": table.epoch,
                "fromEpoch": before.epoch,
                "keyHashes": moved,
                "rows": 3 * moved,
            }
            self.swaps.append(record | {"bytes": 1000 * moved, "exportMs": 120, "batchMs": batch_ms})
        sketch = (hashes[order], counts[order])
        join = {"sides": self.sides, "right_rows": self._right(hashes[order])}
        times, values = loads * MS_PER_ROW, {key: value for key, value in self.values.items() if key in rows}
        self.committed.append(
            ObservedBatch(
                batch, table.epoch, batch_ms, loads, loads * 100, times, *sketch, 1, key_values=values, **join
            )
        )


class FakeGateway:
    """Serves fake queries; `fail` names the calls that raise, with what."""

    def __init__(self, *queries: FakeQuery) -> None:
        self.queries = list(queries)
        self.ended: list[FakeQuery] = []
        self.published: list[tuple[str, Table]] = []
        self.shown: list[tuple[str, float | None, float | None, int]] = []
        self.calls = 0
        self.fail: dict[str, BaseException] = {}
        self.is_alive = True
        self.watched = self.looks_ahead = False
        self.unwatched: list[str] = []
        self.news: list[str] = []
        self.decisions: list[tuple[str, int]] = []
        self.repeat = False  # whether batches that were handed out come again

    def active(self) -> list[FakeQuery]:
        self._may_fail("active")
        return list(self.queries)

    def alive(self) -> bool:
        return self.is_alive

    def same_session(self, other: object) -> bool:
        return True

    def wait(self, seconds: float) -> bool:
        time.sleep(min(seconds, 0.01))
        return True

    def newest(self, query_id: str) -> int:
        self._may_fail("newest")
        found = self._committed(query_id)
        return found[-1].batch if found else -1

    def decided(self, query_id: str, batch: int) -> None:
        self.decisions.append((query_id, batch))

    def upcoming(self, query_id: str) -> ObservedBatch | None:
        self._may_fail("upcoming")
        return next((query.upcoming for query in self.queries if query.id == query_id), None)

    def watch(self, query: FakeQuery, plan_wait_ms: int, look_ahead: bool) -> None:
        self._may_fail("watch")
        self.watched, self.looks_ahead = True, look_ahead

    def observed(self, query_id: str, after: int) -> list[ObservedBatch]:
        self._may_fail("observed")
        return [batch for batch in self._committed(query_id) if self.repeat or batch.batch > after]

    def _committed(self, query_id: str) -> list[ObservedBatch]:
        return next((query.committed for query in [*self.queries, *self.ended] if query.id == query_id), [])

    def publish(self, query: FakeQuery, table: bytes) -> tuple[int, int]:
        self.calls += 1
        self._may_fail("publish")
        self.published.append((query.id, Table.decode(table)))
        return query.publish(Table.decode(table))

    def obstacle(self, query: FakeQuery) -> str | None:
        self._may_fail("obstacle")
        return query.obstacle

    def table_at(self, query: FakeQuery, batch: int) -> bytes | None:
        table = query.table_at(batch)
        return table.encode() if table.epoch else None

    def unwatch_query(self, query: FakeQuery) -> None:
        self.unwatched.append(query.id)

    def show(self, news: str) -> bool:
        self._may_fail("show")
        self.news.append(news)
        return True

    def latest(self, query: FakeQuery) -> bytes | None:
        self._may_fail("latest")
        return query.pins[-1][1].encode() if query.pins else None

    def unwatch(self) -> None:
        self._may_fail("unwatch")
        self.watched = False

    def show_metrics(
        self, query_id: str, imbalance: float | None, pause_ms: float | None, errors: int
    ) -> bool:
        self._may_fail("show_metrics")
        self.shown.append((query_id, imbalance, pause_ms, errors))
        return True

    def swaps(self, query: FakeQuery) -> list[dict[str, Any]]:
        self._may_fail("swaps")
        return query.swaps

    def end(self, query: FakeQuery) -> None:
        """The query runs no more; what was observed of it can still be asked for."""
        self.queries.remove(query)
        self.ended.append(query)

    def _may_fail(self, call: str) -> None:
        if call in self.fail:
            raise self.fail[call]
