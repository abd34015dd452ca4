"""Aj-Stream: a key gets as many partitions as fair shares it is predicted to have, and keeps those it has.

Sun, Zhang, Gao, Buyya: "An adaptive load balancing strategy for stateful join operator in skewed data stream
environments", sections 3.3 and 3.4. Algorithm 1 chooses the keys that a table names, Algorithm 2 splits each
over N_k = floor(n x predicted share) instances (Eq. 13), changes only the difference to the splits that it
had (Eq. 14), and takes instances by first fit.

What we changed. The share is the one seen, weighted towards the newest batches; whoever has a forecast puts
it there. |H| (Eq. 12: theta_L x memory of an instance / size of a tuple) is the table's `max_entries`, the
memory that a table may take. The paper does not say when an instance is suitable for a split: here, if the
split leaves it at most twice the mean load, which is what a key with N_k = 1 may come to. N_k = 1 leaves a
key whole, for a move policy to place.
"""

from __future__ import annotations

import numpy as np

from skewless.model.snapshot import Floats
from skewless.model.spread import Ints
from skewless.policies.splits.seen import Seen

SUITABLE = 2.0  # times the mean load


def aj_stream(seen: Seen) -> Ints:
    """N_k for the keys that Algorithm 1 chooses and for those that are in the table already."""
    chosen = candidates(seen.shares, seen.named, seen.entries)
    return np.where(chosen, splits_of(seen.shares, seen.partitions), 1)


def splits_of(shares: Floats, instances: int) -> Ints:
    """Eq. 13: the integer part of instances x predicted share, at least one and at most all.

    >>> splits_of(np.array([0.5, 0.26, 0.1]), 8)
    array([4, 2, 1])
    """
    wanted = np.floor(instances * np.asarray(shares) + 1e-9).astype(np.int64)
    return np.clip(wanted, 1, instances)


def candidates(shares: Floats, named: np.ndarray, size: int) -> np.ndarray:
    """Algorithm 1: the keys that the table shall name: those that it does, and as long as there are fewer
    than `size`, the keys with the largest shares that it does not.

    >>> candidates(np.array([0.1, 0.5, 0.4]), np.array([True, False, False]), 2)
    array([ True,  True, False])
    """
    chosen, room = named.copy(), size - int(np.count_nonzero(named))
    if room > 0:
        new = np.flatnonzero(~named)
        chosen[new[np.argsort(-np.asarray(shares)[new], kind="stable")[:room]]] = True
    return chosen


def first_fit(loads: Floats, taken: tuple[int, ...], cell: float, count: int) -> tuple[int, ...]:
    """Algorithm 2, lines 8-13 and 29-35: up to `count` more instances, in order of number, for which a split
    of this cost is suitable; of none that the key has.

    >>> first_fit(np.array([3.0, 0.0, 9.0, 0.0]), taken=(1,), cell=3.0, count=3)
    (0, 3)
    """
    mean = (float(loads.sum()) + count * cell) / len(loads)
    fits = np.flatnonzero(loads + cell <= SUITABLE * mean * (1 + 1e-9))
    return tuple(int(d) for d in fits if d not in taken)[:count]
