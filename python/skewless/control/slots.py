"""The slots that tasks run on, and when the last task of a stage ends on them.

Separate from the clock because this is Spark's scheduler in a few lines, and knows nothing of rows.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skewless.control.observed import ObservedBatch
from skewless.model.snapshot import Floats


@dataclass(frozen=True)
class Slots:
    """
    counts    tasks that each executor runs at once
    homes     the executor on which each partition's state lies, -1: on none; empty: nobody knows
    wait      seconds that a free slot waits before it takes a task whose home is another executor
              (spark.locality.wait)

    Four tasks, started in order. On two slots the last waits for the second; with a slot for each the longest
    decides; and where one executor is home to three of them, its one slot does them one after the other:

    >>> seconds = np.array([4.0, 1.0, 2.0, 3.0])
    >>> Slots((2,)).finish(seconds), Slots((4,)).finish(seconds)
    (6.0, 4.0)
    >>> Slots((1, 1), homes=(0, 0, 0, 1), wait=60).finish(seconds)
    7.0
    >>> Slots((1, 1), homes=(0, 0, 0, 1), wait=0.5).finish(seconds)     # the second goes to the other
    6.0
    """

    counts: tuple[int, ...]
    homes: tuple[int, ...] = ()
    wait: float = 0.0

    @classmethod
    def of(cls, batch: ObservedBatch) -> Slots:
        """The slots that this batch had for itself, as far as they are known; else one for each partition."""
        counts = tuple(_free(batch, e, count) for e, count in enumerate(batch.slots.tolist()))
        if sum(counts) < 1:
            return cls((batch.partitions,))
        return cls(counts, tuple(batch.executors.tolist()), batch.locality_wait_ms / 1000)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def finish(self, seconds: Floats) -> float:
        """When the last of the tasks ends, which take so long; Spark starts them in the order of their
        partitions."""
        if len(seconds) <= self.total and not self._crowded(len(seconds)):
            return float(seconds.max(initial=0.0))
        return max((done for _, _, done in self._runs(seconds)), default=0.0)

    def strays(self, seconds: Floats) -> tuple[int, ...]:
        """The partitions whose tasks would run away from their homes: the queue there is longer than the
        wait, and elsewhere a slot is free.

        >>> Slots((1, 1), homes=(0, 0, 0, 1), wait=0.5).strays(np.array([4.0, 1.0, 2.0, 3.0]))
        (1,)
        """
        if not self._crowded(len(seconds)):
            return ()
        away = [p for p, executor, _ in self._runs(seconds) if self.homes[p] not in (-1, executor)]
        return tuple(sorted(away))

    def _runs(self, seconds: Floats) -> Iterator[tuple[int, int, float]]:
        """Partition, executor and end of each task, in the order in which they start."""
        homes = self.homes if len(self.homes) == len(seconds) else (-1,) * len(seconds)
        waiting: dict[int, deque[int]] = {}
        for partition, home in enumerate(homes):
            waiting.setdefault(home, deque()).append(partition)
        slots = [(0.0, e, False) for e, count in enumerate(self.counts) for _ in range(count)]
        heapq.heapify(slots)
        while any(waiting.values()):
            now, executor, takes_any = heapq.heappop(slots)
            queues = waiting.values() if takes_any else (waiting.get(executor), waiting.get(-1))
            queue = min((q for q in queues if q), key=lambda q: q[0], default=None)
            if queue is None:
                heapq.heappush(slots, (now + self.wait, executor, True))
                continue
            partition = queue.popleft()
            done = now + float(seconds[partition])
            yield partition, executor, done
            heapq.heappush(slots, (done, executor, takes_any))

    def _crowded(self, tasks: int) -> bool:
        """Whether some executor is home to more tasks than it has slots for."""
        if len(self.homes) != tasks:
            return False
        at_home = np.bincount(
            np.array([h for h in self.homes if h >= 0], dtype=int), minlength=len(self.counts)
        )
        return bool(np.any(at_home > np.array(self.counts)))


def _free(batch: ObservedBatch, executor: int, slots: int) -> int:
    """The slots of an executor that the batch's tasks really had: if some of them waited there, it was for as
    many slots as never ran one of them at the same time, and those were held by others."""
    here = np.flatnonzero((batch.executors == executor) & (batch.start_ms >= 0) & (batch.run_ms >= 0))
    starts = batch.start_ms[here]
    ends = starts + np.maximum(1, batch.run_ms[here])
    most = max((int(np.count_nonzero((starts <= at) & (ends > at))) for at in starts), default=0)
    return most if 0 < most < len(here) else slots
