"""The simulator's figures against a plain computation of the same, and what must hold for every scheme."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skewless import policies
from skewless.errors import SettingError
from skewless.model.table import Table
from skewless.simulate import Cluster, Result, WorkerChange, from_array, make, simulate, zipf
from skewless.simulate.catalogue import NAMES
from skewless.simulate.schemes.fixed_table import FixedTable
from skewless.simulate.schemes.scheme import Scheme
from skewless.simulate.schemes.table_policy import POLICIES, TableScheme
from skewless.simulate.streams.generators import drifting_zipf, fluctuating
from skewless.simulate.streams.stream import Numbered, Stream


def all_keys(stream: Stream) -> np.ndarray:
    return np.concatenate(list(stream.chunks()))


def plainly(keys: np.ndarray, workers: np.ndarray, cluster: Cluster, batch: int) -> dict[str, float]:
    """Every measure by its definition, one tuple at a time."""
    n, service = cluster.workers, cluster.service_seconds
    loads, free, batch_loads = np.zeros(n), np.zeros(n), np.zeros(n)
    imbalance, latencies, slowest, perfect = [], [], 0.0, 0.0
    for t, worker in enumerate(workers.tolist()):
        loads[worker] += 1
        batch_loads[worker] += 1
        imbalance.append(loads.max() - loads.mean())
        free[worker] = max(free[worker], t * cluster.arrival_seconds) + service[worker]
        latencies.append(free[worker] - t * cluster.arrival_seconds)
        if (t + 1) % batch == 0 or t + 1 == len(workers):
            slowest += (batch_loads * service).max()
            perfect += batch_loads.sum() / (1 / service).sum()
            batch_loads[:] = 0
    return {
        "imbalance": imbalance[-1],
        "imbalance_fraction": float(np.mean(imbalance)) / len(keys),
        "max_over_mean": loads.max() / loads.mean(),
        "batch_stretch": slowest / perfect,
        "execution_seconds": free.max(),
        "memory": len(set(zip(keys.tolist(), workers.tolist(), strict=True))),
        "p50": float(np.quantile(latencies, 0.5, method="inverted_cdf")),
        "p99": float(np.quantile(latencies, 0.99, method="inverted_cdf")),
    }


@pytest.mark.parametrize("spec", ["shuffle", "pkg", "fish"])
def test_the_measures_are_those_of_their_definitions(spec: str) -> None:
    stream = drifting_zipf(5000, keys=200, z=1.4, round_tuples=2500)
    cluster = Cluster(70, 3, speeds=[1 + w % 2 for w in range(70)])
    result = simulate(stream, spec, cluster, batch=700)
    keys = all_keys(stream)
    sources = (np.arange(len(keys)) % 3).astype(np.int32)
    expected = plainly(keys, make(spec, cluster).route(keys, stream.hashes[keys], sources), cluster, 700)
    for name in (
        "imbalance",
        "imbalance_fraction",
        "max_over_mean",
        "batch_stretch",
        "execution_seconds",
        "memory",
    ):
        assert getattr(result, name) == pytest.approx(expected[name], rel=1e-9), name
    assert expected["p50"] <= result.latency_p50 <= 1.04 * expected["p50"]
    assert expected["p99"] <= result.latency_p99 <= 1.04 * expected["p99"]
    assert result.keys == len(np.unique(keys))
    assert result.throughput == pytest.approx(len(keys) / expected["execution_seconds"])


@pytest.mark.parametrize("spec", NAMES)
def test_every_scheme_gives_the_same_result_twice(spec: str) -> None:
    stream, cluster = zipf(60_000, 500, 1.1), Cluster(6, 2)
    one, other = (_timeless(simulate(stream, spec, cluster, batch=10_000)) for _ in range(2))
    assert one == other


def _timeless(result: Result) -> Result:
    return replace(result, route_seconds=0.0, costs=replace(result.costs, plan_ms=0.0))


@pytest.mark.parametrize("spec", NAMES)
@pytest.mark.parametrize(
    ("tuples", "keys", "workers"), [(0, 10, 4), (1, 1, 1), (1000, 1, 8), (1000, 3, 200), (500, 50, 1)]
)
def test_every_scheme_copes_with_nothing_one_worker_and_more_workers_than_keys(
    spec: str, tuples: int, keys: int, workers: int
) -> None:
    result = simulate(zipf(tuples, keys, 1.0), spec, Cluster(workers, 2), batch=100)
    assert result.tuples == tuples
    assert result.keys <= result.memory <= max(1, keys) * workers
    assert result.max_over_mean >= 1
    if workers == 1:
        assert result.max_over_mean == 1
        assert result.imbalance == 0


def test_memory_of_key_grouping_is_one_state_a_key_and_of_shuffling_up_to_one_a_worker() -> None:
    stream = zipf(100_000, 50, 0.5)
    assert simulate(stream, "hash", Cluster(8)).memory_ratio == 1
    assert simulate(stream, "shuffle", Cluster(8)).memory_ratio == 8
    assert 1.5 < simulate(stream, "pkg", Cluster(8)).memory_ratio <= 2


def test_skewed_sources_can_be_given_tuple_by_tuple() -> None:
    stream = from_array(np.arange(1000) % 7)
    senders = np.where(np.arange(1000) < 900, 0, 1).astype(np.int32)
    even = simulate(stream, "shuffle", Cluster(10, 2))
    skewed = simulate(stream, "shuffle", Cluster(10, 2), sources=[senders])
    assert even.imbalance <= 2
    assert skewed.imbalance <= 2


def test_a_worker_that_leaves_gets_nothing_afterwards_and_one_that_slows_down_delays_the_end() -> None:
    stream = zipf(100_000, 5000, 0.3)
    leaves = Cluster(4, changes=[WorkerChange(50_000, 3, None)])
    seen = _Spy(leaves)
    simulate(stream, seen, leaves)
    routed = np.concatenate(seen.routed)
    assert 3 in routed[:50_000]
    assert 3 not in routed[50_000:]
    slow = Cluster(4, changes=[WorkerChange(50_000, 3, 0.01)])
    assert (
        simulate(stream, "hash", slow).execution_seconds
        > 2 * simulate(stream, "hash", Cluster(4)).execution_seconds
    )
    with pytest.raises(SettingError, match="no worker is left"):
        simulate(stream, "hash", Cluster(1, changes=[WorkerChange(5, 0, None)]))


class _Spy(Scheme):
    """Key grouping that remembers what it did."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.routed: list[np.ndarray] = []

    def route(self, keys: np.ndarray, hashes: np.ndarray, sources: np.ndarray) -> np.ndarray:
        self.routed.append(self.alive[hashes.astype(np.int64) % len(self.alive)])
        return self.routed[-1]


def test_fish_uses_fast_workers_more_and_ends_sooner_than_by_loads() -> None:
    """FISH paper, section 6.4: half of the workers are twice as fast."""
    stream = zipf(200_000, 10_000, 1.0)
    cluster = Cluster(16, 4, speeds=[1, 2] * 8, utilisation=1.0)
    with_, without = (
        simulate(stream, f"fish:inference={switch},interval=0.5", cluster) for switch in ("on", "off")
    )
    assert with_.execution_seconds < 0.8 * without.execution_seconds


def test_fish_keeps_more_state_in_place_with_the_ring_when_a_worker_joins() -> None:
    """FISH paper, section 6.5."""
    stream = zipf(300_000, 20_000, 0.8)
    cluster = Cluster(17, 2, absent=frozenset({16}), changes=[WorkerChange(150_000, 16, 0.001)])
    ring, modulo = (simulate(stream, f"fish:ring={switch}", cluster).memory for switch in ("on", "off"))
    assert ring < 0.85 * modulo


@pytest.mark.parametrize("policy", POLICIES)
def test_a_table_policy_levels_what_hashing_does_not_and_says_what_it_cost(policy: str) -> None:
    stream, cluster = fluctuating(600_000, keys=3000, z=0.8, f=0.2, interval=100_000, workers=10), Cluster(10)
    hashed = simulate(stream, "hash", cluster, batch=50_000)
    level = simulate(stream, f"{policy}:interval=50000", cluster, batch=50_000)
    if policy == "compact":  # it only tidies the table
        assert level.batch_stretch <= hashed.batch_stretch + 1e-9
        return
    assert level.batch_stretch - 1 < 0.7 * (hashed.batch_stretch - 1)
    assert level.memory == level.keys
    assert level.costs.moved_state > 0
    assert 0 < level.costs.table_entries <= 3000
    assert level.costs.plans >= 1


def test_each_policy_s_name_runs_that_policy() -> None:
    for name in POLICIES:
        scheme = make(f"{name}:interval=10", Cluster(4))
        assert isinstance(scheme, TableScheme)
        assert scheme.controller._policy is policies.get(name)
    with pytest.raises(SettingError, match="no option 'policy'"):
        make("mixed:policy=readj", Cluster(4))


def test_table_policies_refuse_workers_that_join_or_leave() -> None:
    with pytest.raises(SettingError, match="fixed number"):
        simulate(zipf(1000, 10, 1.0), "mixed", Cluster(4, changes=[WorkerChange(5, 1, None)]))


def test_what_is_kept_does_not_grow_with_the_stream() -> None:
    cluster = Cluster(4)
    points = len(simulate(zipf(5_000_000, 10, 0.0), "hash", cluster).points)
    assert points <= 512
    stream: Numbered = from_array(np.arange(10))
    assert simulate(stream, "hash", cluster).tuples == 10


def test_a_batch_of_no_tuples_is_a_setting_error() -> None:
    with pytest.raises(SettingError):
        simulate(zipf(10, 10, 1.0), "hash", Cluster(2), batch=0)


def test_the_points_of_the_imbalance_are_few_evenly_spread_and_end_with_the_stream() -> None:
    for tuples in (5_000, 300_000, 12_000_001):
        points = simulate(zipf(tuples, 100, 1.0), "hash", Cluster(4)).points
        times = [t for t, _ in points]
        assert times[-1] == tuples
        assert len(times) <= 513
        assert len(times) >= min(250, tuples // 8192)
        gaps = np.diff([0, *times[:-1]])
        assert not len(gaps) or gaps.max() <= 2 * gaps.min()


def test_a_scheme_made_for_another_cluster_is_refused() -> None:
    stream = zipf(1000, keys=10, z=1.0)
    with pytest.raises(SettingError, match="made for 4 workers"):
        simulate(stream, make("pkg", Cluster(4)), Cluster(8))
    with pytest.raises(SettingError, match="the table is for 4 partitions"):
        simulate(stream, FixedTable(Cluster(8), Table(4)), Cluster(8))
    with pytest.raises(SettingError, match="8 is no cluster"):
        simulate(stream, "pkg", 8)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="8 is no cluster"):
        make("pkg", 8)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="list is no stream"):
        simulate([1, 2], "pkg", Cluster(8))  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="is no scheme"):
        simulate(stream, 7, Cluster(8))  # type: ignore[arg-type]
