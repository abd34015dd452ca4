"""How long a batch takes: its tasks on the slots there are, and what comes on top of them.

Separate from the costs, which say what a row costs, because time is not load: with more partitions than slots
the scheduler levels much by itself, and a swap may gain nothing.

A batch lasts `overhead` + the time at which the last of its tasks ends; a task lasts `task_seconds` + its
rows times what a row costs. All of it is learned from the batches before, and each batch is predicted before
it is learned from.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from skewless.control.costs import rates_of
from skewless.control.observed import Int64s, ObservedBatch
from skewless.control.slots import Slots
from skewless.model.snapshot import Floats

LEARNED_BATCHES = 8
_LEAST_SLOPE = 0.1  # of the mean: rows never count for nothing


@dataclass(frozen=True)
class Clock:
    """What a batch's work, in seconds by partition, takes on the slots.

    >>> clock = Clock(Slots((2,)))
    >>> clock.tasks(np.array([3.0, 1.0, 1.0, 1.0])), clock.tasks(np.array([1.5, 1.5, 1.5, 1.5]))
    (3.0, 3.0)
    >>> clock.lost(np.array([3.0, 1.0, 1.0, 1.0]))      # the scheduler has levelled it
    0.0
    >>> Clock(Slots((4,))).lost(np.array([3.0, 1.0, 1.0, 1.0]))
    1.0
    """

    slots: Slots
    task_seconds: float = 0.0

    @classmethod
    def one_slot_each(cls, partitions: int) -> Clock:
        return cls(Slots((partitions,)))

    def tasks(self, work: Floats) -> float:
        """Seconds until the last task ends."""
        return self.slots.finish(self.task_seconds + work)

    def lost(self, work: Floats) -> float:
        """How much longer the tasks take than they would with level work, as a share of the latter: the
        imbalance that counts. With a slot for each partition it is the heaviest partition / mean - 1."""
        level = self.tasks(np.full(len(work), work.mean()))
        return max(0.0, self.tasks(work) / level - 1) if level > 0 else 0.0


class Timekeeper:
    """Learns the clock of one query, batch by batch."""

    def __init__(self) -> None:
        self._seen: deque[ObservedBatch] = deque(maxlen=LEARNED_BATCHES)
        self._warm = False

    def learn(self, batch: ObservedBatch) -> None:
        """Takes in a batch that was no swap's own. The first of a run starts workers and loads classes: it
        counts only until there is another."""
        if not batch.rows.any():
            return
        if self._seen and (not self._warm or self._seen[-1].partitions != batch.partitions):
            self._seen.clear()
            self._warm = True
        self._seen.append(batch)

    def clock(self, partitions: int) -> Clock:
        """By the slots that the newest batch had."""
        if not self._knows(partitions):
            return Clock.one_slot_each(partitions)
        return Clock(Slots.of(self._seen[-1]), _line(self._seen)[0])

    def predict_ms(self, batch: ObservedBatch) -> float | None:
        """How long this batch should take, by its rows and by what was learned before it; None if nothing
        was."""
        if not self._knows(batch.partitions):
            return None
        clock, rates = self.clock(batch.partitions), _last_rates(self._seen)
        overhead = median(seen.batch_ms / 1000 - _measured_tasks(seen, clock) for seen in self._seen)
        return 1000 * max(0.0, overhead + clock.tasks(batch.rows * rates))

    def saved_ms(self, batch: ObservedBatch, rows_before: Int64s) -> float | None:
        """How much longer this batch would have taken with these rows by partition, the ones that another
        table would have given it. Its own times say what a row costs: neither a JVM that warms up nor a busy
        machine looks like a gain."""
        timed = batch if (batch.run_ms > 0).any() else None
        known = [*self._seen, *([timed] if timed is not None else [])]
        if not known or known[-1].partitions != batch.partitions:
            return None
        source = [timed] if timed is not None and np.count_nonzero(timed.run_ms > 0) > 2 else known
        fixed, slope = _line(source)
        clock = replace(self.clock(batch.partitions), task_seconds=fixed)
        if timed is not None:
            clock = replace(clock, slots=Slots.of(timed))
        return 1000 * (
            clock.tasks(np.float64(slope) * rows_before) - clock.tasks(np.float64(slope) * batch.rows)
        )

    def _knows(self, partitions: int) -> bool:
        return bool(self._seen) and self._seen[-1].partitions == partitions


def _measured_tasks(batch: ObservedBatch, clock: Clock) -> float:
    """Seconds that the tasks of a batch should have taken together, by how long each of them ran."""
    return clock.slots.finish(np.maximum(0, batch.run_ms) / 1000)


def _last_rates(batches: deque[ObservedBatch]) -> Floats:
    slope = _line(batches)[1]
    *_, rates = rates_of(list(batches))
    typical = float(np.median(rates))
    return rates * (slope / typical) if typical > 0 else rates


def _line(batches: deque[ObservedBatch] | list[ObservedBatch]) -> tuple[float, float]:
    """Seconds of a task without rows, and seconds that a row more takes, over all tasks of the batches.

    >>> batch = ObservedBatch(0, 0, 9, rows=[100, 200, 300], bytes=[0, 0, 0], run_ms=[700, 900, 1100],
    ...                       key_hashes=[], key_rows=[])
    >>> fixed, slope = _line([batch])
    >>> round(fixed, 6), round(slope, 6)
    (0.5, 0.002)
    """
    rows = np.concatenate([batch.rows for batch in batches]).astype(np.float64)
    seconds = np.concatenate([batch.run_ms for batch in batches]) / 1000
    known = (rows > 0) & (seconds > 0)
    if not known.any():
        return 0.0, 0.0
    rows, seconds = rows[known], seconds[known]
    mean, spread = float(seconds.sum() / rows.sum()), rows - rows.mean()
    if len(rows) < 3 or not spread.any():
        return 0.0, mean
    slope = float(np.clip((spread @ seconds) / (spread @ spread), _LEAST_SLOPE * mean, mean))
    return max(0.0, float(seconds.mean() - slope * rows.mean())), slope
