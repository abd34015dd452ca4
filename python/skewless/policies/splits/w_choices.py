"""W-Choices: every partition for each key of the head.

Nasir, De Francisci Morales, Kourtellis, Serafini: "When Two Choices Are Not Enough: Balancing at Scale in
Distributed Stream Processing" (ICDE 2016), section IV: D-Choices with d = n.

What we changed: a key of the tail stays whole, as in `d_choices.py`. In a join this copies every row of the
other side of the head to every partition, so it is the dearest of the widths.
"""

from __future__ import annotations

import numpy as np

from skewless.model.spread import Ints
from skewless.policies.splits.d_choices import head_share
from skewless.policies.splits.seen import Seen


def w_choices(seen: Seen, theta: float | None = None) -> Ints:
    """All partitions for each key above `theta`, 1/(5n) if not given."""
    return np.where(seen.head(head_share(seen.partitions) if theta is None else theta), seen.partitions, 1)
