"""A table that stays as it is, with splits or without: what `skewless.repartition` does with it in Spark.

Separate from the table policies because nothing is decided on the way: the table was made beforehand, by hand
or by `table_with_splits`.

>>> table = table_with_splits([4, 5, 6], [80, 10, 10], partitions=4)
>>> table.targets(4)                       # 80 of 100 rows are 3.2 partitions' work
(0, 3, 1, 2)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from skewless import policies
from skewless.errors import SettingError
from skewless.model.limits import Limits
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s
from skewless.simulate.schemes.scheme import Costs, Scheme


class FixedTable(Scheme):
    """Routes by one table. A source is a map task: which target a row of a split key takes depends on key,
    map task and row, as in Spark."""

    splits = True

    def __init__(self, cluster: Cluster, table: Table) -> None:
        super().__init__(cluster)
        if table.partitions != cluster.workers:
            raise SettingError(
                f"the table is for {table.partitions} partitions, the cluster has {cluster.workers} workers. "
                "Make it for this cluster."
            )
        self.table, self.seen = table, 0

    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        rows = (self.seen + np.arange(len(keys))).astype(np.int32)
        self.seen += len(keys)
        out = np.empty(len(keys), dtype=np.int32)
        for source in np.unique(sources).tolist():
            own = sources == source
            out[own] = self.table.route(hashes[own], source, self.cluster.sources, rows[own])
        return out

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        if len(alive) != self.cluster.workers:
            raise SettingError("a table is for a fixed number of partitions: no worker may join or leave.")

    def costs(self) -> Costs:
        return Costs(table_entries=len(self.table))


def table_with_splits(
    key_hashes: ArrayLike,
    rows: ArrayLike,
    partitions: int,
    *,
    mappers: int | None = None,
    limits: Limits | None = None,
) -> Table:
    """A table for keys that come this often: a key that is more than one partition's work is split over as
    many as its rows need, and Mixed moves the others. If as many `mappers` as targets write the rows, each
    mapper has one target per key, so the width is one that shares them out evenly enough."""
    hashes, counts = np.asarray(key_hashes, dtype=np.int32), np.asarray(rows, dtype=np.float64)
    found, at = np.unique(hashes, return_inverse=True)
    amounts = np.bincount(at, weights=counts, minlength=len(found))
    fair = float(amounts.sum()) / partitions
    giants = np.flatnonzero(amounts > fair) if partitions > 1 else np.zeros(0, dtype=np.intp)
    light = np.ones(len(found), dtype=bool)
    light[giants] = False
    homes = found.astype(np.int64) % partitions
    loads = np.bincount(homes[light], weights=amounts[light], minlength=partitions).astype(np.float64)
    entries: dict[int, tuple[int, ...]] = {}
    for giant in giants[np.argsort(-amounts[giants], kind="stable")].tolist():
        width = _width(float(amounts[giant]) / fair, partitions, mappers)
        targets = np.argsort(loads, kind="stable")[:width]
        loads[targets] += amounts[giant] / width
        entries[int(found[giant])] = tuple(targets.tolist())
    table = Table(partitions, entries)
    snapshot = Snapshot.of(table, found, amounts, amounts)
    return policies.get("mixed")(snapshot, table, limits or Limits()).table.with_epoch(0)


def _width(fair_shares: float, partitions: int, mappers: int | None) -> int:
    """The fewest targets of which none gets more than one partition's work."""
    for width in range(int(np.ceil(fair_shares)), partitions):
        largest = 1 / width if mappers is None or mappers < width else -(-mappers // width) / mappers
        if largest * fair_shares <= 1:
            return width
    return partitions
