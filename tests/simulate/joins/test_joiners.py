"""The joiners against a plain join and a plain queue, tuple by tuple."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.model.split import Split
from skewless.model.table import Table
from skewless.simulate.joins.joiners import Arrivals, Joiners, Minute, Work
from skewless.simulate.joins.routes import Routes, by_table, in_groups

KEYS, INSTANCES = 6, 4
HASHES = np.arange(KEYS, dtype=np.int32)
WORK = Work(store=0.5, probe=0.25, match=0.125)
TABLE = by_table(Table(INSTANCES, {0: Split.left(0, 1, 3), 5: 2}), HASHES)
SCHEMES = [by_table(Table(INSTANCES), HASHES), TABLE, in_groups(HASHES, 4, 2), in_groups(HASHES, 4, 4)]


def some(seed: int, tuples: int = 120, seconds: float = 300.0) -> Arrivals:
    generator = np.random.default_rng(seed)
    return Arrivals(
        np.minimum(generator.geometric(0.4, tuples) - 1, KEYS - 1).astype(np.int32),
        generator.integers(0, 2, tuples).astype(np.int32),
        generator.integers(0, 1 << 40, tuples),
        np.sort(generator.random(tuples) * seconds),
    )


def all_of(arrivals: Arrivals, routes: Routes, work: Work, panes: int = 2) -> tuple[Joiners, Minute]:
    joiners = Joiners(arrivals, KEYS, INSTANCES, work, panes)
    return joiners, joiners.run(np.inf, (routes, routes))


def plain(arrivals: Arrivals, routes: Routes, work: Work, panes: int, most: float) -> dict[str, list[float]]:
    """With lists: every instance keeps all its tuples, and looks through them."""
    kept: list[list[tuple[int, int, int]]] = [[] for _ in range(2 * INSTANCES)]
    free, now = [0.0] * (2 * INSTANCES), 0.0
    found: dict[str, list[float]] = {"emitted": [], "done": [], "pairs": [], "busy": [0.0] * 2 * INSTANCES}
    columns = (arrivals.keys, arrivals.sides, arrivals.deals, arrivals.seconds)
    for key, side, deal, at in zip(*(column.tolist() for column in columns), strict=True):
        mine = routes.of(key).tolist()
        home = side * INSTANCES + mine[deal % len(mine)]
        there = [(1 - side) * INSTANCES + target for target in mine]
        now = max([now, at, *(free[instance] - most for instance in (home, *there))])
        ends = []
        for instance in (home, *there):
            pairs = sum(
                k == key and s != side and int(at // 60) - m < panes for k, s, m in kept[instance]
            )  # fmt: skip
            seconds = work.store if instance == home else work.probe + work.match * pairs
            free[instance] = max(now, free[instance]) + seconds
            found["busy"][instance] += seconds
            found["pairs"].append(pairs)
            ends.append(free[instance])
        kept[home].append((key, side, int(at // 60)))
        found["emitted"].append(now)
        found["done"].append(max(ends))
    return found


@pytest.mark.parametrize("routes", SCHEMES, ids=["hash", "table", "contrand", "bistream"])
@given(seed=st.integers(0, 10_000), slow=st.sampled_from([0.1, 1.0, 4.0]))
@settings(max_examples=15, deadline=None)
def test_queues_waits_and_pairs_are_those_of_a_plain_join(routes: Routes, seed: int, slow: float) -> None:
    arrivals, work = some(seed), Work(slow * WORK.store, slow * WORK.probe, slow * WORK.match)
    _, minute = all_of(arrivals, routes, work)
    expected = plain(arrivals, routes, work, panes=2, most=1.0)
    assert np.allclose(minute.emitted, expected["emitted"])
    assert np.allclose(minute.done, expected["done"])
    assert np.allclose(minute.busy_seconds.ravel(), expected["busy"])
    assert minute.pairs == sum(expected["pairs"])


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_every_scheme_finds_the_same_pairs(seed: int) -> None:
    """A join is a join: where tuples lie changes neither what is found nor what pairs cost together."""
    pairs = {all_of(some(seed), routes, WORK)[1].pairs for routes in SCHEMES}
    assert len(pairs) == 1


@given(st.integers(0, 10_000), st.floats(10, 290))
@settings(max_examples=15, deadline=None)
def test_state_that_moves_is_found_where_it_went(seed: int, swap_at: float) -> None:
    arrivals, hashed = some(seed), SCHEMES[0]
    whole = all_of(arrivals, hashed, Work(0, 0))[1].pairs
    for first, second in ((hashed, TABLE), (TABLE, hashed)):
        joiners = Joiners(arrivals, KEYS, INSTANCES, Work(0, 0), panes=2)
        before = joiners.run(swap_at, (first, first))
        for half in (0, 1):
            joiners.move(half, first, second)
        after = joiners.run(np.inf, (second, second))
        assert before.pairs + after.pairs == whole


def test_without_moving_its_state_a_join_loses_pairs() -> None:
    """The control of the test above."""
    arrivals, hashed = some(3), SCHEMES[0]
    joiners = Joiners(arrivals, KEYS, INSTANCES, Work(0, 0), panes=2)
    found = joiners.run(150.0, (TABLE, TABLE)).pairs + joiners.run(np.inf, (hashed, hashed)).pairs
    assert found < all_of(arrivals, hashed, Work(0, 0))[1].pairs


def test_rows_that_move_keep_their_new_instance_busy() -> None:
    arrivals = Arrivals(
        np.array([5, 5, 5], dtype=np.int32), np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.int64),
        np.array([1.0, 2.0, 70.0]),
    )  # fmt: skip
    joiners = Joiners(arrivals, KEYS, INSTANCES, Work(0.5, 0, 0, move=10.0), most=100.0)
    joiners.run(60.0, (SCHEMES[0],) * 2)
    assert joiners.move(0, SCHEMES[0], TABLE) == 2
    minute = joiners.run(120.0, (TABLE, TABLE))
    assert minute.emitted.tolist() == [70.0]
    assert minute.done.tolist() == [70.5]  # 20 seconds from the second on are over by then
    assert minute.stores[0].tolist() == [0, 0, 1, 0]


def test_a_faster_instance_takes_less_time() -> None:
    arrivals = some(1)
    joiners = Joiners(arrivals, KEYS, INSTANCES, WORK, panes=2)
    joiners.speeds[:] = 2.0
    fast = joiners.run(np.inf, (TABLE, TABLE))
    _, plain_minute = all_of(arrivals, TABLE, WORK)
    assert np.allclose(2 * fast.busy_seconds, plain_minute.busy_seconds)
