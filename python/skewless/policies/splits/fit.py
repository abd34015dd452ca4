"""Where the new slots of a key stand before a move policy places them.

Separate from the split policies, which say how many slots there are.
"""

from __future__ import annotations

import numpy as np

from skewless.model.snapshot import Floats


def least_loaded(loads: Floats, taken: tuple[int, ...], cell: float, count: int) -> tuple[int, ...]:
    """The least loaded partitions of those that the key does not have.

    >>> least_loaded(np.array([3.0, 0.0, 9.0, 1.0]), taken=(1,), cell=2.0, count=2)
    (3, 0)
    """
    order = np.argsort(loads, kind="stable").tolist()
    return tuple(d for d in order if d not in taken)[:count]
