"""D-Choices: as many partitions for each key of the head as leave no set of partitions overloaded.

Nasir, De Francisci Morales, Kourtellis, Serafini: "When Two Choices Are Not Enough: Balancing at Scale in
Distributed Stream Processing" (ICDE 2016), section IV. The head are the keys whose share exceeds theta. All
of them get the smallest d >= p_1 n for which no set of workers is overloaded by the h hottest keys, for each
h. Such a set has about b = n - n (1 - 1/n)^(h d) workers, each of which may take 1/n + epsilon of the stream:
    p_1 + ... + p_h  +  (b/n)^d x (share of the rest of the head)  +  (b/n)^2 x (share of the tail)   <=   b
    (1/n + epsilon).
That is the paper's condition as we know it (arXiv 1510.05714): epsilon bounds the imbalance, which is of one
worker, hence the factor b before it. The text could not be had here, but the authors' programs could
(SLBSimulator and SLBStorm by the first author, GitHub). They test h = 1 and the whole head only, start at
round(p_1 n), and allow the whole set epsilon, b/n + epsilon, so that d is the same or a few larger:
`published` does it their way. docs/evidence/fish.md compares the two.

What we changed: a key of the tail stays whole and is levelled by moves, where D-Choices gives it two workers.
`smallest_d` is compiled by the simulator, whose schemes D-Choices and FISH work it out as they go: it must
stay plain loops over an array.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from skewless.errors import SettingError
from skewless.model.snapshot import Floats
from skewless.model.spread import Ints
from skewless.policies.splits.seen import Seen

EPSILON = 1e-4


def d_choices(seen: Seen, theta: float | None = None, epsilon: float = EPSILON) -> Ints:
    """The same d for each key above `theta`, 1/(5n) if not given; one for the others."""
    head = seen.head(head_share(seen.partitions) if theta is None else theta)
    d = choices_for(seen.shares[head], seen.partitions, epsilon) if head.any() else 1
    return np.where(head, min(d, seen.partitions), 1)


def head_share(partitions: int) -> float:
    """Where the head begins: the share up to which two choices are proven enough (PKG paper, Theorem 5.1)."""
    return 1 / (5 * partitions)


def choices_for(head: ArrayLike, workers: int, epsilon: float = EPSILON, published: bool = False) -> int:
    """How many workers each key of the head gets, given the keys' shares.

    >>> choices_for([0.05], workers=20), choices_for([0.2], workers=20), choices_for([0.9], workers=20)
    (2, 6, 20)
    """
    shares = np.sort(np.asarray(head, dtype=np.float64))[::-1].copy()
    if len(shares) and not (math.isfinite(shares.sum()) and shares.min() >= 0 and shares.sum() <= 1 + 1e-9):
        raise SettingError(f"sum of shares={float(shares.sum())} is out of its range, 0 to 1.")
    return int(smallest_d(shares, workers, epsilon, published))


def smallest_d(shares: Floats, workers: int, epsilon: float, published: bool) -> int:
    """The condition of section IV; `shares` of the head, largest first."""
    if len(shares) == 0:
        return 2
    head, least = shares.sum(), shares[0] * workers
    for d in range(max(2, int(np.rint(least) if published else np.ceil(least))), workers):
        missed, prefix, fits = (1.0 - 1.0 / workers) ** d, 0.0, True
        left = 1.0
        for h in range(len(shares)):
            prefix += shares[h]
            left *= missed
            if published and 0 < h < len(shares) - 1:
                continue
            reach = 1.0 - left  # b / n
            load = prefix + reach**d * (head - prefix) + reach * reach * (1.0 - head)
            if load > reach + epsilon * (1.0 if published else reach * workers):
                fits = False
                break
        if fits:
            return d
    return workers
