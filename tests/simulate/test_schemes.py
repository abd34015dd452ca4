"""Every scheme against its plain-Python twin, tuple by tuple, and against what the papers prove."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulate_oracles as oracles
from skewless.errors import SettingError
from skewless.model.table import Table
from skewless.policies.splits.d_choices import choices_for
from skewless.simulate.catalogue import NAMES, make
from skewless.simulate.cluster import Cluster, WorkerChange
from skewless.simulate.schemes.fixed_table import FixedTable, table_with_splits
from skewless.simulate.schemes.ring import Ring
from skewless.simulate.schemes.space_saving import SpaceSaving
from skewless.simulate.schemes.table_policy import POLICIES
from skewless.simulate.streams.keyhash import of_int64s

KEYS = 300
PER_TUPLE = [name for name in NAMES if name not in POLICIES]


def zipf(tuples: int, z: float, seed: int, keys: int = KEYS) -> np.ndarray:
    shares = 1 / np.arange(1, keys + 1) ** z
    return np.random.default_rng(seed).choice(keys, size=tuples, p=shares / shares.sum()).astype(np.int32)


def drifting(tuples: int, seed: int) -> np.ndarray:
    keys = zipf(tuples, 1.3, seed)
    keys[tuples // 2 :] = KEYS - 1 - keys[tuples // 2 :]
    return keys


def routed(spec: str, cluster: Cluster, keys: np.ndarray, chunk: int = 777) -> np.ndarray:
    scheme = make(spec, cluster)
    scheme.prepare(np.bincount(keys, minlength=KEYS))
    hashes, sources = of_int64s(keys), (np.arange(len(keys)) % cluster.sources).astype(np.int32)
    parts = [slice(i, i + chunk) for i in range(0, len(keys), chunk)]
    return np.concatenate([scheme.route(keys[p], hashes[p], sources[p]) for p in parts])


def expected(route: oracles.Route, cluster: Cluster, keys: np.ndarray) -> list[int]:
    hashes = of_int64s(keys).tolist()
    return [route(key, hashes[i], i % cluster.sources) for i, key in enumerate(keys.tolist())]


TWINS = {
    "hash": oracles.hashing,
    "shuffle": oracles.shuffle,
    "potc": oracles.potc,
    "on-greedy": oracles.on_greedy,
    "pkg": oracles.greedy,
    "pkg:estimate=global": lambda n, s: oracles.greedy(n, s, 2, "global"),
    "pkg:estimate=probed,period=50": lambda n, s: oracles.greedy(n, s, 2, "probed", 50),
    "greedy:d=5": lambda n, s: oracles.greedy(n, s, 5),
    "d-choices:top=40,refresh=10": lambda n, s: oracles.head_choices(n, s, 40, 10, False),
    "d-choices:top=40,refresh=10,published=on": lambda n, s: oracles.head_choices(n, s, 40, 10, False, True),
    "w-choices:top=40": lambda n, s: oracles.head_choices(n, s, 40, 1, True),
}


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("spec", TWINS)
def test_each_scheme_routes_every_tuple_as_its_plain_twin_does(spec: str, workers: int, sources: int) -> None:
    cluster = Cluster(workers, sources)
    for seed, z in enumerate((0.0, 0.9, 2.0)):
        keys = zipf(1500, z, seed)
        assert routed(spec, cluster, keys).tolist() == expected(TWINS[spec](workers, sources), cluster, keys)


@pytest.mark.parametrize("workers", [1, 7, 64])
def test_off_greedy_places_keys_by_decreasing_count_as_its_plain_twin_does(workers: int) -> None:
    keys, cluster = zipf(2000, 1.1, 5), Cluster(workers)
    twin = oracles.off_greedy(workers, np.bincount(keys, minlength=KEYS).tolist())
    assert routed("off-greedy", cluster, keys).tolist() == expected(twin, cluster, keys)


@pytest.mark.parametrize("classes", ["chk", "all", "d-choices"])
@pytest.mark.parametrize(("workers", "sources"), [(1, 1), (8, 1), (13, 3), (64, 2)])
def test_fish_routes_every_tuple_as_its_plain_twin_does(workers: int, sources: int, classes: str) -> None:
    cluster = Cluster(workers, sources, speeds=[1 + w % 2 for w in range(workers)])
    ring, service = Ring(np.arange(workers)), cluster.service_seconds.tolist()
    for seed in range(2):
        keys = drifting(3000, seed)
        twin = oracles.fish(
            workers,
            sources,
            lambda h: ring.orders[ring.nodes_of(np.array([h], dtype=np.int32))[0]].tolist(),
            service,
            cluster.arrival_seconds,
            capacity=50,
            epoch=200,
            interval=0.05,
            classes=classes,
        )
        got = routed(f"fish:top=50,epoch=200,interval=0.05,classes={classes}", cluster, keys)
        assert got.tolist() == expected(twin, cluster, keys)


def test_fish_without_ring_and_inference_goes_by_hashed_candidates_and_by_loads() -> None:
    cluster, keys = Cluster(9, 2, speeds=[1 + w % 3 for w in range(9)]), drifting(3000, 3)
    twin = oracles.fish(
        9,
        2,
        lambda h: [oracles.candidate(h, i, 9) for i in range(9)],
        [1.0] * 9,
        cluster.arrival_seconds,
        epoch=200,
        interval=1e18,
        ring=False,
    )
    assert routed("fish:epoch=200,ring=off,inference=off", cluster, keys).tolist() == expected(
        twin, cluster, keys
    )


@pytest.mark.parametrize("workers", [8, 128])
def test_d_choices_splits_early_keys_hardly_more_than_if_d_were_new_at_every_tuple(workers: int) -> None:
    """Of the first tuple the one key is the whole stream: a d that is kept from then on is far too wide."""
    keys, cluster = zipf(20_000, 0.5, 4, keys=5000), Cluster(workers, 4)
    often, seldom = (
        len(np.unique(keys.astype(np.int64) * workers + routed(spec, cluster, keys)))
        for spec in ("d-choices:refresh=1", "d-choices")
    )
    assert seldom <= 1.02 * often


@pytest.mark.parametrize("spec", NAMES)
def test_the_size_of_the_chunks_does_not_matter(spec: str) -> None:
    keys, cluster = drifting(4000, 9), Cluster(12, 3)
    assert routed(spec, cluster, keys, 4000).tolist() == routed(spec, cluster, keys, 13).tolist()


@pytest.mark.parametrize("spec", PER_TUPLE)
def test_a_scheme_that_does_not_split_keeps_each_key_at_one_worker(spec: str) -> None:
    keys = drifting(5000, 1)
    pairs = len(np.unique(keys.astype(np.int64) * 100 + routed(spec, Cluster(10, 2), keys)))
    split = pairs > len(np.unique(keys))
    assert split == NAMES[spec].splits


@given(st.lists(st.integers(0, 40), max_size=400), st.integers(1, 12))
@settings(deadline=None)
def test_space_saving_counts_at_least_the_truth_and_at_most_tuples_over_capacity_more(
    keys: list[int], capacity: int
) -> None:
    summary = SpaceSaving(capacity)
    summary.offer(keys)
    counts = summary.counts()
    assert len(counts) <= capacity
    assert sum(counts.values()) == len(keys)
    for key in set(keys):
        if key in counts:
            assert keys.count(key) <= counts[key] <= keys.count(key) + len(keys) / capacity
        else:
            assert keys.count(key) <= len(keys) / capacity


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 4), st.floats(0, 1))
@settings(deadline=None)
def test_a_decayed_summary_replaces_the_same_keys_as_its_plain_twin(
    keys: list[int], capacity: int, alpha: float
) -> None:
    summary, twin = SpaceSaving(capacity), oracles.Counter(capacity)
    for first in range(0, len(keys), 7):
        summary.offer(keys[first : first + 7])
        for key in keys[first : first + 7]:
            twin.touch(key)
        summary.decay(alpha)
        twin.decay(alpha)
    assert summary.counts() == {key: entry[0] for key, entry in twin.counts.items()}


@given(st.lists(st.floats(1e-4, 1), min_size=1, max_size=30), st.integers(3, 60), st.booleans())
@settings(deadline=None)
def test_d_is_the_smallest_that_meets_the_closed_condition(
    weights: list[float], workers: int, published: bool
) -> None:
    head = sorted((w / (sum(weights) + 0.3) for w in weights), reverse=True)
    assert choices_for(head, workers, published=published) == oracles.choices_for(
        head, workers, published=published
    )


# By hand, with r = b/n = 1 - (1 - 1/n)^(h d); all others of the stream are tail.
# One key of 0.3, n = 10: d = 5 gives r = 0.4095 and a load of 0.3 + 0.7 r^2 = 0.4174; d = 6 gives 0.4686 and
# 0.4537: fits. 0.3 and 0.1, n = 10: d = 5, h = 2 gives r = 0.6513 and 0.4 + 0.6 r^2 = 0.6545; d = 6 gives
# 0.7176 and 0.7089, and fits for h = 1 too (0.4686; 0.3 + 0.1 r^6 + 0.6 r^2 = 0.4328). 0.5, n = 20, epsilon
# 0.02: with x = 0.95^d the paper asks for x^2 / 2 <= 0.4 (1 - x), x <= 0.5798, d >= 10.6; the programs for
# x^2 / 2 <= 0.02, x <= 0.2, d >= 31, more than there are.
@pytest.mark.parametrize(
    ("head", "n", "epsilon", "paper", "published"),
    [
        ((0.3,), 10, 1e-4, 6, 6),
        ((0.3, 0.1), 10, 1e-4, 6, 6),
        ((0.5,), 20, 0.02, 11, 20),
        ((0.05,), 20, 1e-4, 2, 2),
    ],
)
def test_d_is_what_the_condition_gives_by_hand(
    head: tuple[float, ...], n: int, epsilon: float, paper: int, published: int
) -> None:
    assert (choices_for(head, n, epsilon), choices_for(head, n, epsilon, published=True)) == (
        paper,
        published,
    )


@pytest.mark.parametrize(
    ("n", "z", "ours", "theirs"),
    [(20, 1.4, 10, 14), (50, 1.2, 13, 15), (100, 1.0, 12, 12), (100, 2.0, 95, 97)],
)
def test_d_as_the_published_programs_find_it_is_the_same_or_larger(
    n: int, z: float, ours: int, theirs: int
) -> None:
    shares = 1 / np.arange(1, 10_001) ** z
    head = (shares / shares.sum())[shares / shares.sum() > 1 / (5 * n)]
    assert (choices_for(head, n), choices_for(head, n, published=True)) == (ours, theirs)


def test_the_published_lower_bound_of_two_choices_holds_where_one_key_is_too_hot() -> None:
    keys, n = zipf(50_000, 1.5, 0), 40
    share = np.bincount(keys).max() / len(keys)
    assert share > 2 / n
    loads = np.bincount(routed("pkg", Cluster(n), keys), minlength=n)
    assert (loads.max() - loads.mean()) / len(keys) >= share / 2 - 1 / n - 1e-9


def test_shuffle_grouping_is_off_by_at_most_one_tuple_a_source() -> None:
    for sources, workers in ((1, 7), (5, 7), (8, 3)):
        loads = np.bincount(
            routed("shuffle", Cluster(workers, sources), zipf(10_001, 1.0, 0)), minlength=workers
        )
        assert loads.max() - loads.mean() <= sources


def test_two_choices_stay_within_a_constant_of_the_mean_in_the_regime_of_theorem_5_1() -> None:
    """p1 <= 1/(5n), m >= n^2: I(m) = O(m/n). The uniform law over 5n keys is the paper's worst case."""
    for n in (10, 40):
        keys = np.random.default_rng(n).integers(0, 5 * n, 200 * n * n // 10).astype(np.int32)
        loads = np.bincount(routed("pkg", Cluster(n), keys, 1 << 20), minlength=n)
        assert loads.max() - loads.mean() <= 1.0 * len(keys) / n
        hashed = np.bincount(routed("hash", Cluster(n), keys, 1 << 20), minlength=n)
        assert loads.max() < hashed.max()


@pytest.mark.parametrize("spec", PER_TUPLE)
def test_after_a_worker_has_left_no_tuple_goes_there_and_a_newcomer_is_used(spec: str) -> None:
    cluster, keys = Cluster(6, 2, absent=frozenset({5})), zipf(20_000, 0.5, 0, 5000)
    scheme = make(spec, cluster)
    scheme.prepare(np.bincount(keys, minlength=5000))
    hashes, sources = of_int64s(keys), (np.arange(len(keys)) % 2).astype(np.int32)
    half = slice(0, 10_000), slice(10_000, 20_000)
    first = scheme.route(*(a[half[0]] for a in (keys, hashes, sources)))
    scheme.change(np.array([0, 1, 3, 4, 5], dtype=np.int32), cluster.service_seconds)
    second = scheme.route(*(a[half[1]] for a in (keys, hashes, sources)))
    assert 5 not in first
    assert 2 not in second
    assert set(second) == {0, 1, 3, 4, 5}


@pytest.mark.parametrize("seed", [1, (1 << 24) + 1, (1 << 31) - 1])
def test_every_scheme_takes_every_seed(seed: int) -> None:
    keys = zipf(2000, 1.0, 3)
    for spec in PER_TUPLE:
        workers = routed(spec, Cluster(9, 2, seed=seed), keys)
        assert workers.min() >= 0
        assert workers.max() < 9
    assert not np.array_equal(Ring(np.arange(9), seed=seed).nodes, Ring(np.arange(9)).nodes)


def test_a_fixed_table_routes_each_row_as_the_table_does_for_its_mapper() -> None:
    table = Table(5, dict.fromkeys(of_int64s([0, 3]).tolist(), (1, 4, 2)) | {int(of_int64s([1])[0]): 3})
    keys, sources = zipf(600, 1.2, 8), 2
    hashes, senders = of_int64s(keys), (np.arange(600) % sources).astype(np.int32)
    got = FixedTable(Cluster(5, sources), table).route(keys, hashes, senders)
    expected = [
        int(table.route([h], s, sources, [row])[0])
        for row, (h, s) in enumerate(zip(hashes.tolist(), senders.tolist(), strict=True))
    ]
    assert got.tolist() == expected
    assert set(got[keys == 0].tolist()) == {1, 2, 4}


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 12), st.integers(1, 30))
@settings(deadline=None)
def test_a_key_is_split_so_that_no_target_gets_more_than_its_fair_share_of_it(
    rows: list[int], partitions: int, mappers: int
) -> None:
    hashes = of_int64s(np.arange(len(rows)))
    table = table_with_splits(hashes, rows, partitions, mappers=mappers)
    fair = sum(rows) / partitions
    for key_hash, count in zip(hashes.tolist(), rows, strict=True):
        targets = table.targets(key_hash)
        assert (len(targets) > 1) == (count > fair and partitions > 1)
        if 1 < len(targets) < partitions:
            part = -(-mappers // len(targets)) / mappers if mappers >= len(targets) else 1 / len(targets)
            assert part * count <= fair * (1 + 1e-9)


def test_the_ring_moves_only_the_keys_of_the_worker_that_left() -> None:
    hashes = of_int64s(np.arange(5000))
    before, after = Ring(np.arange(10)).first(hashes), Ring(np.delete(np.arange(10), 4)).first(hashes)
    assert np.array_equal(before[before != 4], after[before != 4])


@pytest.mark.parametrize(
    "spec",
    ["nonsense", "pkg:d=3", "greedy:d=0", "greedy:d=x", "pkg:estimate=guess", "fish:alpha=2",
     "fish:alpha=nan", "fish:classes=x", "d-choices:top=0", "d-choices:theta=-1", "hash:x=1"],
)  # fmt: skip
def test_a_wrong_specification_is_a_setting_error(spec: str) -> None:
    with pytest.raises(SettingError):
        make(spec, Cluster(4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"workers": -1},
        {"workers": 2.5},
        {"workers": 4, "sources": 0},
        {"workers": 4, "seed": -1},
        {"workers": 4, "seed": 1 << 31},
        {"workers": 4, "seed": 0.5},
        {"workers": 2, "speeds": [1.0, float("nan")]},
        {"workers": 2, "speeds": [1.0]},
        {"workers": 2, "speeds": [1.0, 0.0]},
        {"workers": 2, "utilisation": 0.0},
        {"workers": 2, "changes": [WorkerChange(0, 2, None)]},
        {"workers": 2, "changes": [WorkerChange(0, 1, -1.0)]},
        {"workers": 2, "absent": frozenset({0, 1})},
    ],
)
def test_a_wrong_cluster_is_a_setting_error(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        Cluster(**wrong)  # type: ignore[arg-type]
