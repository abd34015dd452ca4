"""Off-Greedy: the whole stream is known; the keys, most frequent first, go to the least loaded worker.

PKG paper, section 6.2 (Q1): an unfair rival for online schemes, and the best that a scheme which never splits
a key and never moves one can be expected to do.
"""

from __future__ import annotations

import numpy as np

from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled
from skewless.simulate.schemes.scheme import Costs, Scheme


class OffGreedy(Scheme):
    """Longest processing time first over the true counts; equal counts in order of key number."""

    needs_counts = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.counts = np.zeros(0, dtype=np.int64)
        self.home = np.zeros(0, dtype=np.int32)

    def prepare(self, counts: Int64s) -> None:
        self.counts = counts
        self.home = self.alive[_deal_out(np.argsort(-counts, kind="stable"), counts, len(self.alive))]

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        return self.home[keys]

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        super().change(alive, service_seconds)
        self.prepare(self.counts)

    def costs(self) -> Costs:
        return Costs(table_entries=int(np.count_nonzero(self.counts)))


@compiled
def _deal_out(order: Int64s, counts: Int64s, workers: int) -> Int32s:
    home = np.zeros(len(counts), dtype=np.int32)
    loads = np.zeros(workers, dtype=np.int64)
    for key in order:
        home[key] = np.argmin(loads)
        loads[home[key]] += counts[key]
    return home
