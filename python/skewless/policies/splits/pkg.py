"""PKG: two partitions for every key above a share.

Nasir, De Francisci Morales, García-Soriano, Kourtellis, Serafini: "Partial Key Grouping: Load-Balanced
Partitioning of Distributed Streams", sections 3 and 5. The paper gives two workers to every key, and shows
(Theorem 5.1) that this levels a stream as long as no key has more than about 1/(5n) of it.

What we changed: a key below that share stays whole. A split costs copies of the join's other side, and a key
so light is levelled by a move. A width of two is the whole of what PKG says here; which two partitions, a
move policy decides by their loads, where PKG takes them from two hashes.
"""

from __future__ import annotations

import numpy as np

from skewless.model.spread import Ints
from skewless.policies.splits.seen import Seen

LEAST = 0.2  # of a fair share: what two choices are proven to level


def pkg(seen: Seen, above: float = LEAST) -> Ints:
    """Two for each key with more than `above` of a partition's fair share of all rows."""
    return np.where(seen.head(above / seen.partitions), min(2, seen.partitions), 1)
