"""Records of a query that a loop levelled, made by the loop itself over a fake gateway; for tests of status
and report."""

from __future__ import annotations

import numpy as np

from fake_gateway import Clock, FakeGateway, FakeQuery
from skewless.control.loop import Loop
from skewless.control.pace import Pace
from skewless.control.settings import Settings
from skewless.policies import Limits
from skewless.report.status import Status


def drifting(batches: int = 60, partitions: int = 8, keys: int = 400, seed: int = 5) -> Status:
    """A stream of Zipf-like keys whose hot ones change every 25 batches, levelled by Mixed."""
    rng = np.random.default_rng(seed)
    query = FakeQuery(partitions=partitions, name="clicks <b>")
    settings = Settings(limits=Limits(max_imbalance=0.1), pace=Pace(patience=2, cooldown_seconds=0))
    loop = Loop(FakeGateway(query), settings, Clock())
    loop.step()
    hashes = rng.choice(1 << 20, keys, replace=False).tolist()
    for batch in range(batches):
        if batch % 25 == 0:
            weights = rng.permutation(np.arange(1, keys + 1) ** -0.9)
        rows = rng.poisson(3000 * weights / weights.sum())
        query.run({} if batch == batches // 2 else dict(zip(hashes, rows.tolist(), strict=True)))
        loop.step()
    return loop.status()
