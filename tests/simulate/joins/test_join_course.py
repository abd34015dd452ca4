"""Courses: what the loop makes of a join, and what the two other schemes give up for balance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skewless.control.foresight import Foresight
from skewless.control.pace import Pace
from skewless.control.settings import Settings
from skewless.errors import SettingError
from skewless.model.snapshot import Floats
from skewless.simulate.joins.course import Course, Fixed, Routing, Watched, drawn, run
from skewless.simulate.joins.joiners import Work
from skewless.simulate.joins.routes import in_groups
from skewless.simulate.streams import keyhash

KEYS, HALF, MINUTES = 60, 4, 14
HASHES = keyhash.of_int64s(np.arange(KEYS))
EAGER = Settings(splits="auto", pace=Pace(patience=1, cooldown_seconds=0))
WORK = Work(store=0.02, probe=0.002)


def with_hot_key(share: float) -> Floats:
    return np.repeat(np.array([[share, *np.full(KEYS - 1, (1 - share) / (KEYS - 1))]]), MINUTES, axis=0)


def course(routing: Routing, weights: Floats, rate: float = 200.0, first_share: float = 0.8) -> Course:
    return run(drawn(weights, [rate] * MINUTES, 1, first_share), KEYS, routing, WORK, MINUTES, panes=2)


def test_the_loop_splits_a_hot_key_and_the_join_keeps_up() -> None:
    weights = with_hot_key(0.6)
    hashed = course(Fixed.hashing(HASHES, HALF), weights)
    watched = Watched(HASHES, HALF, EAGER, quiet=2)
    split = course(watched, weights)
    assert len(watched.routes[0].of(0)) > 1
    assert split.throughput[-4:].mean() > 1.3 * hashed.throughput[-4:].mean()
    assert split.width > 1


def test_a_course_is_the_same_under_a_seed() -> None:
    one, two = (course(Watched(HASHES, HALF, EAGER, quiet=2), with_hot_key(0.5)) for _ in range(2))
    assert np.array_equal(one.latency_ms, two.latency_ms)
    assert one.moved_rows == two.moved_rows


def test_what_cannot_be_done_in_time_is_not_counted_and_what_arrives_is() -> None:
    calm = course(Fixed.hashing(HASHES, HALF), with_hot_key(1 / KEYS), rate=20.0)
    assert np.allclose(calm.throughput, 20.0, atol=0.1)
    flooded = course(Fixed.hashing(HASHES, HALF), with_hot_key(1 / KEYS), rate=2000.0)
    assert flooded.throughput.max() < 2 * HALF / WORK.store


def test_random_routing_is_level_and_looks_everywhere() -> None:
    weights = with_hot_key(0.6)
    found = {size: course(Fixed.contrand(HASHES, HALF, size), weights, rate=40.0) for size in (1, 2, HALF)}
    assert [round(one.width, 6) for one in found.values()] == [1, 2, HALF]
    levels = [one.work[-4:].mean() for one in found.values()]
    assert levels[0] > levels[1] > levels[2]
    bistream = course(Fixed.bistream(HASHES, HALF), weights, rate=40.0)
    assert np.array_equal(bistream.latency_ms, found[HALF].latency_ms)


def test_scaling_gives_speed_to_who_lags_and_takes_it_from_the_others() -> None:
    weights = with_hot_key(0.6)
    held = replace(EAGER, splits="off")
    without = course(Watched(HASHES, HALF, held, quiet=2), weights)
    watched = Watched(HASHES, HALF, held, quiet=2, scaling=True)
    scaled = course(watched, weights)
    assert scaled.throughput[-4:].mean() > 1.1 * without.throughput[-4:].mean()


class Told(Foresight):
    """Says that the next minutes are the first key's alone."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def see(self, batch: object) -> None:
        self.seen += 1
        self._foreseen = (HASHES[:1], np.array([0.9]))


def test_the_loop_plans_by_what_it_is_told() -> None:
    told = Told(), Told()
    watched = Watched(HASHES, HALF, EAGER, foresights=told, quiet=2)
    course(watched, with_hot_key(1 / KEYS))
    assert [one.seen for one in told] == [MINUTES - 2] * 2
    assert len(watched.routes[0].of(0)) > 1


def test_a_group_that_does_not_divide_the_instances_is_refused() -> None:
    with pytest.raises(SettingError, match="cannot be cut into groups of 3"):
        in_groups(HASHES, 4, 3)
