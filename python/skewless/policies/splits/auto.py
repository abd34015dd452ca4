"""The width that pays: our own choice.

Separate from the papers' widths because those look at a key's share alone. In a join each partition more also
costs a copy of the other side, so that wider is not always faster. A batch lasts as long as its heaviest
partition, or as all work on the slots there are. For each width that gives a floor: the key's cell on top of
what cannot move, and all work, copies included, divided by the slots. The smallest width that comes near the
lowest floor is taken.
"""

from __future__ import annotations

import numpy as np

from skewless.model.spread import Ints
from skewless.policies.splits.seen import Seen

WORTH = 0.5  # of a fair share: a lighter key is levelled by moves
FILL = 0.5  # of a level partition: a cell so large still leaves room to level what else there is
PAYS = 1.1  # a split that ends a batch sooner by less is not worth its copies
CLOSE = 1.02


def auto(seen: Seen) -> Ints:
    """One for each key that moves can level, else the smallest width that pays."""
    widths = np.ones(len(seen.key_hashes), dtype=np.int64)
    level, copied = seen.total / max(1, seen.slots), 0.0
    if level <= 0 or seen.partitions < 2:
        return widths
    costs = seen.left + seen.right
    heavy = np.flatnonzero(costs > WORTH * seen.total / seen.partitions)
    for key in heavy[np.argsort(-costs[heavy], kind="stable")].tolist():
        widths[key] = _width(seen, key, level + copied / seen.slots)
        copied += seen.copied(key, int(widths[key]))
    return widths


def _width(seen: Seen, key: int, level: float) -> int:
    floors = np.sort(seen.floors)
    times = [
        max(level + seen.copied(key, width) / seen.slots, floors[width - 1] + seen.cell(key, width))
        for width in range(1, seen.partitions + 1)
    ]
    best = min(times)
    if times[0] <= PAYS * best:
        return 1
    good = [width for width, time in enumerate(times, 1) if time <= CLOSE * best]
    roomy = [width for width in good if seen.cell(key, width) <= FILL * best]
    return min(roomy) if roomy else min(good)
