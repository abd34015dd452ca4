"""Instances for tests: the paper's examples, and random small ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits

# Fig. 4: d1 is partition 0, d2 is partition 1. Even hashes are at home in d1, odd ones in d2.
K1, K2, K3, K4, K5, K6 = 10, 12, 14, 11, 13, 15
FIGURE_4_COSTS = {K1: 7, K2: 4, K3: 2, K4: 1, K5: 5, K6: 1}


def figure_4() -> tuple[Snapshot, Table]:
    """The toy example of Fig. 4; state equals cost, as for a window of one interval."""
    table = Table(2, {K3: 1, K5: 0})
    costs = list(FIGURE_4_COSTS.values())
    return Snapshot.of(table, list(FIGURE_4_COSTS), costs, costs), table


def on_one_partition(costs: list[float], partitions: int) -> tuple[Snapshot, Table]:
    """Keys of these costs, all hashed to partition 0, under an empty table; state equals cost."""
    table = Table(partitions)
    hashes = [partitions * (i + 1) for i in range(len(costs))]
    return Snapshot.of(table, hashes, costs, costs), table


@dataclass(frozen=True)
class Instance:
    """Raw input of a policy: kept apart from a Snapshot so that a test can shuffle the keys."""

    table: Table
    key_hashes: tuple[int, ...]
    costs: tuple[float, ...]
    state_bytes: tuple[float, ...]
    remainders: tuple[float, ...]
    limits: Limits

    def snapshot(self, order: list[int] | None = None) -> Snapshot:
        at = np.array(order if order is not None else range(len(self.key_hashes)), dtype=int)
        hashes, costs, state = (
            np.array(values)[at] for values in (self.key_hashes, self.costs, self.state_bytes)
        )
        return Snapshot.of(self.table, hashes.astype(np.int64), costs, state, remainder_costs=self.remainders)


@st.composite
def instances(draw: st.DrawFn, most_keys: int = 24, most_partitions: int = 5) -> Instance:
    """Small instances with every oddity: ties, zero costs, no state, giants, remainders, entries of keys
    nobody saw."""
    n = draw(st.integers(1, most_partitions))
    hashes = draw(st.lists(st.integers(-50, 50), unique=True, max_size=most_keys))
    weights = st.one_of(
        st.integers(0, 12).map(float), st.floats(0, 50, allow_subnormal=False), st.just(200.0)
    )
    costs = draw(st.lists(weights, min_size=len(hashes), max_size=len(hashes)))
    state = draw(st.lists(st.integers(0, 30).map(float), min_size=len(hashes), max_size=len(hashes)))
    remainders = draw(st.lists(st.sampled_from([0.0, 0.0, 3.0, 40.0]), min_size=n, max_size=n))
    known = st.sampled_from(hashes) if hashes else st.integers(-60, 60)
    entries = draw(st.dictionaries(st.one_of(known, st.integers(-60, 60)), st.integers(0, n - 1), max_size=6))
    limits = Limits(
        max_imbalance=draw(st.sampled_from([0.0, 0.05, 0.3])),
        max_entries=draw(st.sampled_from([0, 2, 5, 100])),
        max_bytes=draw(st.sampled_from([0.0, 40.0, float("inf")])),
        beta=draw(st.sampled_from([0.5, 1.0, 1.5])),
        degree=draw(st.sampled_from([1, 4])),
    )
    return Instance(
        useful(Table(n, entries, epoch=3)),
        tuple(hashes),
        tuple(costs),
        tuple(state),
        tuple(remainders),
        limits,
    )


def useful(table: Table) -> Table:
    """The table without entries that only repeat plain hashing."""
    kept = {key_hash: targets for key_hash, targets in table if targets != (key_hash % table.partitions,)}
    return Table(table.partitions, kept, table.epoch)


def loads_under(snapshot: Snapshot, table: Table) -> np.ndarray:
    """The loads of the tracked keys under another table, told by the table itself."""
    moved = np.bincount(table.route(snapshot.key_hashes), weights=snapshot.costs, minlength=table.partitions)
    return moved + snapshot.remainder_costs
