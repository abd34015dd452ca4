"""Partial key grouping (PKG) and Greedy-d: each tuple goes to the least loaded of its key's d workers.

PKG paper, sections 3 and 5. A key is split over at most d workers, so nothing need be remembered or agreed.
What a source knows of the loads is the second idea (sections 3.2 and 6.2, Q2): everything (`global`, G), its
own tuples (`local`, L: the paper's choice and the default), or its own plus the truth from time to time
(`probed`, LP).
"""

from __future__ import annotations

import numpy as np

from skewless.errors import SettingError
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled
from skewless.simulate.schemes.scheme import Scheme, candidate, number

ESTIMATES = ("local", "global", "probed")


class Greedy(Scheme):
    """The least loaded of d hashed workers; if loads are equal, the first of them.

    `d` is the number of choices (section 5), `estimate` what a source knows. With `probed`, every source
    takes over the true loads after each `period` tuples of the whole stream (section 6.2: every minute), all
    at once, or in turn if `staggered`.
    """

    splits = True

    def __init__(
        self,
        cluster: Cluster,
        d: int = 2,
        estimate: str = "local",
        period: int = 100_000,
        staggered: bool = False,
    ) -> None:
        super().__init__(cluster)
        if estimate not in ESTIMATES:
            raise SettingError(f"estimate {estimate!r} is unknown. Choose one of {', '.join(ESTIMATES)}.")
        self.d = int(number("d", d, 1, 1 << 15))
        self.rows = (
            np.zeros(cluster.sources, dtype=np.int64) if estimate == "global" else np.arange(cluster.sources)
        )
        self.estimates = np.zeros((cluster.sources, cluster.workers), dtype=np.int64)
        self.truth = np.zeros(cluster.workers, dtype=np.int64)
        self.period = int(number("period", period, 1, 1e18)) if estimate == "probed" else 0
        self.staggered = staggered
        self.seen = 0

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        settings = (self.d, self.period, self.staggered, self.cluster.seed)
        out = _choose(
            hashes, sources, self.rows, self.estimates, self.truth, self.alive, self.seen, *settings
        )
        self.seen += len(keys)
        return out

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        joined = np.setdiff1d(
            alive, self.alive
        )  # a newcomer starts level, or it would take everything for a while
        self.estimates[:, joined] = self.estimates[:, self.alive].min(axis=1, keepdims=True)
        self.truth[joined] = self.truth[self.alive].min()
        super().change(alive, service_seconds)


class PartialKeyGrouping(Greedy):
    """PKG: Greedy with two choices."""

    def __init__(
        self, cluster: Cluster, estimate: str = "local", period: int = 100_000, staggered: bool = False
    ) -> None:
        super().__init__(cluster, 2, estimate, period, staggered)


@compiled
def _choose(
    hashes: Int32s,
    sources: Int32s,
    rows: Int64s,
    estimates: Int64s,
    truth: Int64s,
    alive: Int32s,
    seen: int,
    d: int,
    period: int,
    staggered: bool,
    seed: int,
) -> Int32s:
    out = np.empty(len(hashes), dtype=np.int32)
    step = max(1, period // len(rows)) if staggered else period
    for i in range(len(hashes)):
        if period > 0 and seen + i > 0 and (seen + i) % step == 0:
            for s in range(len(rows)):
                if not staggered or s == ((seen + i) // step) % len(rows):
                    for worker in range(len(truth)):
                        estimates[s, worker] = truth[worker]
        row = rows[sources[i]]
        worker = alive[candidate(hashes[i], 0, len(alive), seed)]
        for j in range(1, d):
            other = alive[candidate(hashes[i], j, len(alive), seed)]
            if estimates[row, other] < estimates[row, worker]:
                worker = other
        estimates[row, worker] += 1
        truth[worker] += 1
        out[i] = worker
    return out
