"""A table made from a forecast, and what becomes of it: the yardstick for forecasts that plan.

Separate from the policies, which this room may not know: all that is needed is a plain way to level, the same
for all forecasts. The hottest keys are dealt out one by one, each to the partition with the least so far
(longest processing time first: R. L. Graham, 1969); all other keys are spread evenly.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from skewless.model.snapshot import Floats
from skewless.model.table import Int32s

Ints = NDArray[np.int64]


def dealt(key_hashes: Int32s, shares: Floats, partitions: int) -> Ints:
    """A partition for each key. Keys of no share stay at home.

    >>> dealt(np.array([0, 2, 4], dtype=np.int32), np.array([0.4, 0.3, 0.2]), 2)
    array([0, 1, 1])
    """
    targets = np.mod(key_hashes.astype(np.int64), partitions)
    order = np.argsort(-shares, kind="stable")
    heap = [(0.0, partition) for partition in range(partitions)]
    for key in order[shares[order] > 0].tolist():
        load, partition = heapq.heappop(heap)
        targets[key] = partition
        heapq.heappush(heap, (load + float(shares[key]), partition))
    return targets


def stretch(targets: Ints, shares: Floats, partitions: int) -> float:
    """The heaviest partition over the mean with these real shares; 1 is level.

    >>> stretch(np.array([0, 1, 1]), np.array([0.4, 0.3, 0.1]), 2)      # 0.2 lie elsewhere, spread evenly
    1.0
    """
    loads = np.bincount(targets, weights=shares, minlength=partitions)
    elsewhere = max(0.0, 1.0 - float(shares.sum())) / partitions
    return float((loads.max() + elsewhere) * partitions)
