"""Shuffle grouping: each source deals its tuples out in turn. The reference for balance; every key may be
everywhere.

PKG paper, section 2.1: the imbalance is at most one tuple for each source.
"""

from __future__ import annotations

import numpy as np

from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Int32s, Int64s, compiled
from skewless.simulate.schemes.scheme import Scheme


class ShuffleGrouping(Scheme):
    """Round robin, each source starting at another worker."""

    splits = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.turn = np.arange(cluster.sources, dtype=np.int64) * len(self.alive) // cluster.sources

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        return self.alive[_deal(sources, self.turn, len(self.alive))]


@compiled
def _deal(sources: Int32s, turn: Int64s, workers: int) -> Int32s:
    out = np.empty(len(sources), dtype=np.int32)
    for i in range(len(sources)):
        s = sources[i]
        if turn[s] >= workers:
            turn[s] = 0
        out[i] = turn[s]
        turn[s] += 1
    return out
