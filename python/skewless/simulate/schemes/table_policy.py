"""Runs a table policy (LLFD, Simple, MinTable, MinMig, Mixed, Readj ...) as a scheme, through the controller
that Spark uses.

Separate from the per-tuple schemes because it decides once an interval, a micro-batch: the loads of a batch
make a snapshot, the controller decides, and the next batch is routed by the new table. It splits a key only
for a join (`widths`).

>>> from skewless.simulate.streams.generators import zipf
>>> from skewless.simulate.simulator import simulate
>>> stream = zipf(400_000, keys=10_000, z=0.8)
>>> plain = simulate(stream, "hash", Cluster(8))
>>> level = simulate(stream, "mixed:interval=50000", Cluster(8), batch=50_000)
>>> level.max_over_mean < plain.max_over_mean and level.costs.table_entries > 0
True
"""

from __future__ import annotations

from collections import deque

import numpy as np

from skewless import policies
from skewless.control.controller import Controller
from skewless.control.pace import Pace
from skewless.errors import SettingError
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits, Policy, splits
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s, Int64s
from skewless.simulate.schemes.scheme import Costs, Scheme, number, sizes_to

POLICIES = tuple(name for name in policies.names() if name != "take_back")
ROW_BYTES = 100.0


class TableScheme(Scheme):
    """A policy, by name or as a function.

    `interval` is the tuples of a batch; `window` over how many batches a key's state goes back, 5 (Mixed
    paper, Table II); `max_imbalance` theta_max, 0.08, and `max_entries` A_max, 3,000 (both Table II);
    `tracked` how many keys a snapshot names, the rest being one remainder per worker;
    `patience` and `cooldown` (seconds) hold the controller back: by default it plans after every
    interval, as the paper does. It weighs
    a swap's gain against its cost as if a level batch lasted `batch_seconds`. `widths` names a split policy:
    then the tuples are one side of a join, the side that may be split, and the other side has next to none.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: str | Policy = "mixed",
        *,
        interval: int = 100_000,
        window: int = 5,
        max_imbalance: float = Limits.max_imbalance,
        max_entries: int = Limits.max_entries,
        tracked: int = 100_000,
        patience: int = 1,
        cooldown: float = 0.0,
        batch_seconds: float = 10.0,
        widths: str = "off",
    ) -> None:
        super().__init__(cluster)
        self.sides = "" if widths == "off" else "left"
        self.interval = int(number("interval", interval, 1, 1e18))
        self.tracked = int(number("tracked", tracked, 1, 1e18))
        self.service_seconds = cluster.service_seconds
        self.batch, self.done, self.moved, self.plans, self.plan_seconds = 0, 0, 0.0, 0, 0.0
        level_cost = self.interval / float(np.sum(1 / self.service_seconds))
        self.controller = Controller(
            Table(cluster.workers),
            policy,
            limits=Limits(max_imbalance=max_imbalance, max_entries=max_entries),
            pace=Pace(
                patience=patience, cooldown_seconds=cooldown, seconds_per_cost=batch_seconds / level_cost
            ),
            splits=None if widths == "off" else splits.get(widths),
            clock=lambda: self.batch * batch_seconds,
        )
        self.hash_of = np.zeros(0, dtype=np.int32)
        self.home = np.zeros(0, dtype=np.int32)
        self.counts = np.zeros(0, dtype=np.int64)
        self.past: deque[Int64s] = deque(maxlen=int(number("window", window, 1, 1e6)))

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        self._learn(keys, hashes)
        out = np.empty(len(keys), dtype=np.int32)
        first = 0
        while first < len(keys):
            end = min(len(keys), first + self.interval - self.done)
            out[first:end] = self._targets(keys[first:end], hashes[first:end], sources[first:end])
            self.counts += np.bincount(keys[first:end], minlength=len(self.counts))
            self.done += end - first
            if self.done == self.interval:
                self._end_interval()
            first = end
        return out

    def _targets(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        """Where each tuple goes; one of a split key by what it holds, as in Spark."""
        out, table = self.home[keys], self.controller.table
        if table.has_splits:
            split = np.flatnonzero(np.isin(hashes, table.split_hashes))
            contents = (self.done + split).astype(np.int32)
            out[split] = table.route(hashes[split], contents=contents)
        return out

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        if len(alive) != self.cluster.workers:
            raise SettingError(
                "a table is for a fixed number of partitions: table policies take no workers that join or "
                "leave."
            )
        self.service_seconds = service_seconds

    def costs(self) -> Costs:
        return Costs(self.moved, len(self.controller.table), self.plans, 1000 * self.plan_seconds)

    def _learn(self, keys: Int32s, hashes: Int32s) -> None:
        """Room for new key numbers, and where they go."""
        length = int(keys.max(initial=-1)) + 1
        if length > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(length - len(self.counts), dtype=np.int64)])
            self.hash_of = sizes_to(self.hash_of, length, 0)
        self.hash_of[keys] = hashes
        self.home = self.controller.table.route(self.hash_of)

    def _end_interval(self) -> None:
        self.past.append(self.counts)
        self.counts, self.done, self.batch = np.zeros_like(self.counts), 0, self.batch + 1
        decision = self.controller.observe(self._snapshot())
        if decision.plan is not None:
            self.plans += 1
            self.plan_seconds += decision.plan.seconds
        if decision.action == "swap" and decision.plan is not None:
            self.moved += decision.plan.bytes_moved / ROW_BYTES
            self.controller.finished(decision.plan.table.epoch, self.controller.cost.guess(decision.plan))
            self.home = self.controller.table.route(self.hash_of)

    def _snapshot(self) -> Snapshot:
        """The last batch: its busiest keys one by one, the rest as a remainder; the state reaches back over
        the window."""
        rows = self.past[-1]
        state = np.zeros(len(rows))
        for counts in self.past:
            state[: len(counts)] += counts
        cost = rows * self.service_seconds[self.home[: len(rows)]]
        seen = np.flatnonzero(state)
        if len(seen) > self.tracked:
            seen = seen[np.argpartition(cost[seen], -self.tracked)[-self.tracked :]]
        rest = np.ones(len(rows), dtype=bool)
        rest[seen] = False
        home, workers = self.home[: len(rows)][rest], self.cluster.workers
        return Snapshot.of(
            self.controller.table,
            self.hash_of[seen],
            cost[seen],
            ROW_BYTES * state[seen],
            remainder_costs=np.bincount(home, weights=cost[rest], minlength=workers),
            remainder_bytes=np.bincount(home, weights=ROW_BYTES * state[rest], minlength=workers),
            batches=(self.batch,),
            sides=self.sides,
        )
