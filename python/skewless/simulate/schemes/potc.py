"""PoTC and On-Greedy: a key's worker is chosen when its first tuple comes, and kept.

PKG paper, section 6.2 (Q1). Both keep one state per key, and both need what makes them impractical there: all
sources agree on one table with an entry for every key, and know the load of every worker.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled
from skewless.simulate.schemes.scheme import Costs, Scheme, candidate, sizes_to


class PowerOfTwoChoices(Scheme):
    """A new key goes to the less loaded of its two workers (the first, if equal), and stays there."""

    choices: ClassVar[int] = 2

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.home = np.full(1024, -1, dtype=np.int32)
        self.loads = np.zeros(cluster.workers, dtype=np.int64)

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        self.home = sizes_to(self.home, int(keys.max(initial=-1)) + 1, -1)
        return _stick(keys, hashes, self.home, self.loads, self.alive, self.choices, self.cluster.seed)

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        joined = np.setdiff1d(alive, self.alive)
        self.loads[joined] = self.loads[self.alive].min()
        self.home[~np.isin(self.home, alive)] = -1
        super().change(alive, service_seconds)

    def costs(self) -> Costs:
        return Costs(table_entries=int(np.count_nonzero(self.home >= 0)))


class OnGreedy(PowerOfTwoChoices):
    """A new key goes to the least loaded of all workers (the smallest number, if equal), and stays there."""

    choices = 0


@compiled
def _stick(
    keys: Int32s, hashes: Int32s, home: Int32s, loads: Int64s, alive: Int32s, choices: int, seed: int
) -> Int32s:
    out = np.empty(len(keys), dtype=np.int32)
    for i in range(len(keys)):
        worker = home[keys[i]]
        if worker < 0:
            worker = alive[0] if choices == 0 else alive[candidate(hashes[i], 0, len(alive), seed)]
            for j in range(1, len(alive) if choices == 0 else choices):
                other = alive[j] if choices == 0 else alive[candidate(hashes[i], j, len(alive), seed)]
                if loads[other] < loads[worker]:
                    worker = other
            home[keys[i]] = worker
        loads[worker] += 1
        out[i] = worker
    return out
