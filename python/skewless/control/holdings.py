"""What the partitions of one query's run hold and cost, and which executor holds each: learned from its last
batches.

Separate from the placer, which decides for all queries together. A batch alone says little: the first one at
a new executor pays for the load of the state, and any one may meet a pause. So times are medians over some
batches, and a time on a new executor is not counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from skewless.control.observed import ObservedBatch
from skewless.control.slots import Slots
from skewless.model.snapshot import Floats

WINDOW = 5  # batches
RECENT_BATCHES = 15  # a snapshot no older than this is recent: Spark makes one about every ten batches
# 104 MB took 0.16 s from a recent snapshot, 1.3 s where changes had to be replayed (CPU time of the task)
REPLAY = 8.0
SECONDS_PER_BYTE = 1.5e-9  # of a load from a recent snapshot
SECONDS_PER_MOVE = 0.05
NOBODY = ""  # holds a partition whose executor is gone, or not known


class Holdings:
    """Of one run of a query. `wishes` is what was wished for last; tasks of batches from `binding_from` on
    were placed under it."""

    def __init__(self, query: Any, title: str, newest: int = -1) -> None:
        self.query, self.title, self.run_id, self.newest = query, title, str(query.runId), newest
        self.holders: tuple[str, ...] = ()
        self.wishes: dict[int, str] = {}
        self.binding_from = 0
        self.moved_at: dict[int, float] = {}
        self.refused = ""  # why this run cannot be placed
        self.wait = 0.0  # seconds: spark.locality.wait
        self.epoch = -1
        self._seconds: deque[Floats] = deque(maxlen=WINDOW)
        self._commits: deque[float] = deque(maxlen=WINDOW + 1)
        self._batch_seconds: deque[float] = deque(maxlen=WINDOW)
        self._last_seconds: Floats = np.zeros(0)
        self._bytes: Floats = np.zeros(0)
        self._snapshots: Floats = np.zeros(0)

    def take(self, batch: ObservedBatch) -> tuple[int, ...]:
        """The next committed batch: the partitions that ran elsewhere than was wished for."""
        self.newest = batch.batch
        ids = batch.executor_ids
        holders = tuple(ids[e] if 0 <= e < len(ids) else NOBODY for e in batch.executors.tolist())
        moved = np.array([a != b for a, b in zip(holders, self.holders, strict=False)], dtype=np.bool_)
        if len(holders) != len(self.holders):
            moved, self._last_seconds = np.zeros(len(holders), dtype=np.bool_), np.zeros(len(holders))
            self._seconds.clear()
        self.holders, self.wait = holders, batch.locality_wait_ms / 1000
        self._bytes = np.array(batch.partition_state_bytes, dtype=np.float64)
        self._snapshots = np.array(batch.snapshot_versions, dtype=np.float64)
        if batch.rows.any():
            self._learn(batch, moved)
        return self._strays()

    def _learn(self, batch: ObservedBatch, moved: Any) -> None:
        seconds = np.maximum(batch.run_ms, 0) / 1000.0
        self._last_seconds = seconds
        self._batch_seconds.append(batch.batch_ms / 1000)
        if batch.committed_at:
            self._commits.append(batch.committed_at)
        if batch.epoch != self.epoch:  # other keys from here on, and this batch paid for their move
            first, self.epoch = self.epoch < 0, batch.epoch
            self._seconds.clear()
            if not first:
                return
        self._seconds.append(np.where(moved | (batch.run_ms < 0), np.nan, seconds))

    def _strays(self) -> tuple[int, ...]:
        if self.newest < self.binding_from:
            return ()
        return tuple(p for p, e in enumerate(self.holders) if e and self.wishes.get(p, e) != e)

    def wished(self, wishes: Mapping[int, str]) -> None:
        """The batch after the newest may be running: from the one after that on the wishes were there."""
        self.wishes, self.binding_from = dict(wishes), self.newest + 2

    @property
    def pending(self) -> bool:
        """Whether wishes were made that no batch has shown yet."""
        return self.newest < self.binding_from

    @property
    def places(self) -> tuple[str, ...]:
        """Who holds each partition, or will once the wishes that are pending hold."""
        if not self.pending:
            return self.holders
        return tuple(self.wishes.get(p, e) for p, e in enumerate(self.holders))

    @property
    def seconds(self) -> Floats:
        """How long each partition's task takes."""
        if not self._seconds:
            return self._last_seconds
        known = np.array(self._seconds)
        some = ~np.isnan(known).all(axis=0)
        found = self._last_seconds.copy()
        if some.any():
            found[some] = np.nanmedian(known[:, some], axis=0)
        return found

    @property
    def interval(self) -> float:
        """Seconds from one batch with rows to the next."""
        usual = float(np.median(self._batch_seconds)) if self._batch_seconds else 0.0
        apart = np.diff(np.array(self._commits))
        return max(usual, float(np.median(apart)) if len(apart) else 0.0, 1e-3)

    @property
    def state_bytes(self) -> Floats:
        """Of each partition; 0 where no partition's is known, else the mean for one that is not."""
        count, known = len(self.holders), self._bytes[self._bytes >= 0]
        if len(self._bytes) != count or not len(known):
            return np.zeros(count)
        return np.where(self._bytes >= 0, self._bytes, known.mean())

    @property
    def replay(self) -> Floats:
        """How many times longer a load of each partition's state takes than one from a recent snapshot.
        Spark names the oldest snapshots only: one that is not named is no older than the newest named."""
        count, told = len(self.holders), self._snapshots
        if len(told) != count or not (told > -2).any():
            return np.ones(count)
        versions = np.where(told > -2, told, told.max())
        return np.where(self.newest - versions <= RECENT_BATCHES, 1.0, REPLAY)

    def load_seconds(self, partitions: list[int]) -> float:
        """What it takes to load the state of these partitions elsewhere, all together."""
        bytes_loaded = (self.state_bytes * self.replay)[partitions]
        return float(bytes_loaded.sum()) * SECONDS_PER_BYTE + SECONDS_PER_MOVE * len(partitions)

    def finish(self, executors: Mapping[str, int], places: tuple[str, ...]) -> float:
        """When the last of the query's tasks would end with its partitions in these places."""
        return self._slots(executors, places).finish(self.seconds)

    def strays(self, executors: Mapping[str, int], places: tuple[str, ...]) -> int:
        """Tasks that would leave their executor because its queue is longer than the locality wait."""
        return len(self._slots(executors, places).strays(self.seconds))

    def _slots(self, executors: Mapping[str, int], places: tuple[str, ...]) -> Slots:
        at = {executor: i for i, executor in enumerate(executors)}
        return Slots(tuple(executors.values()), tuple(at.get(e, -1) for e in places), self.wait)
