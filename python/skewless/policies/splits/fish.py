"""FISH: the hotter a key was lately, the more partitions it gets, in classes of halves.

Huang: "Efficient Time-Evolving Stream Processing at Scale", section 4. Algorithm 1 multiplies all counts by
alpha after each epoch; Algorithm 2 (CHK) gives a key above theta n / 2^i workers, i = floor(log2(hottest /
key)), never fewer than d_min or than it had; Algorithm 3 infers what each worker has still to do.

What we changed. In the loop an epoch is a batch, since within one only counts are known, and alpha is the
loop's `decay` per batch. d_min is 2, or ceil(n x mean share of the hot keys) where that is more: the paper
leaves it open. A key that is not hot stays whole, where FISH gives it two workers. What a key had is what the
table in force gives it. In the loop the inference is the measured seconds per row of each partition, which
every cost contains.

The three formulas are compiled by the simulator, whose scheme `fish` takes a tuple at a time: they must stay
plain arithmetic.
"""

from __future__ import annotations

import numpy as np

from skewless.model.spread import Ints
from skewless.policies.splits.seen import Seen


def fish(seen: Seen, theta: float | None = None) -> Ints:
    """CHK classes for the keys above `theta`, 1/(4n) if not given (section 6.3)."""
    n, shares = seen.partitions, seen.shares
    hot = seen.head(1 / (4 * n) if theta is None else theta)
    widths = np.ones(len(shares), dtype=np.int64)
    if hot.any():
        d_min, top = workers_needed(float(shares[hot].sum()), int(hot.sum()), n), float(shares.max())
        for key in np.flatnonzero(hot).tolist():
            known = max(d_min, int(seen.widths[key]))
            widths[key] = min(n, chk_width(float(shares[key]), top, known, n))
    return widths


def workers_needed(hot_share: float, hot_keys: int, workers: int) -> int:
    """d_min: the workers that an average hot key needs, two at least.

    >>> workers_needed(0.6, 2, 8), workers_needed(0.01, 3, 8)
    (3, 2)
    """
    return min(workers, max(2, int(np.ceil(workers * hot_share / max(1, hot_keys)))))


def chk_width(count: float, top: float, known: int, workers: int) -> int:
    """Algorithm 2: the workers of a hot key, given the count of the hottest one and what it must have at
    least. n >> floor(log2(top / count)), exactly.

    >>> [chk_width(count, 80, known=2, workers=16) for count in (80, 41, 40, 21, 20, 1)]
    [16, 16, 8, 8, 4, 2]
    """
    width, share = workers, count
    while width > known and 2.0 * share <= top:
        width, share = width >> 1, 2.0 * share
    return max(width, known)


def backlog_seconds(backlog: float, sent: float, elapsed: float) -> float:
    """Formulas (1) and (2), in seconds: how long a worker still has to work, if it had so much to do, was
    sent so much more, and has worked since. The paper counts tuples: C = ((C + N) x P - T) / P, and the wait
    is C x P.

    >>> backlog_seconds(40.0, 20.0, 10.0), backlog_seconds(1.0, 2.0, 10.0)
    (50.0, 0.0)
    """
    return max(backlog + sent - elapsed, 0.0)
