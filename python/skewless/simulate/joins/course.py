"""A join, minute after minute: arrivals go through the joiners, and what routes them may learn from it.

Separate from the joiners, which know one minute and no scheme.

>>> weights = np.full((3, 50), 1 / 50)
>>> hashes = np.arange(50, dtype=np.int32)
>>> plain = Fixed.hashing(hashes, 4)
>>> course = run(drawn(weights, [100.0] * 3, seed=1), 50, plain, Work(0.001, 0.001), minutes=3)
>>> [int(minute) for minute in course.throughput.round()], course.moved_rows
([100, 100, 100], 0)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skewless.control.foresight import Foresight
from skewless.control.settings import Settings
from skewless.model.snapshot import imbalance_of
from skewless.model.table import Table
from skewless.policies.scaling.aj_stream import aj_stream as scaled
from skewless.simulate.compiled import Floats, Int32s, Int64s
from skewless.simulate.joins.joiners import SIDES, Arrivals, Joiners, Minute, Work
from skewless.simulate.joins.routes import Routes, by_table, in_groups
from skewless.simulate.joins.watched import WatchedHalf

SECONDS = 60
LEAST_SPEED, UNIT = 0.5, 0.25  # what an instance keeps, and what a lambda of 1 is worth


class Routing(ABC):
    """Where the tuples go in either half; `see` comes after each minute."""

    routes: tuple[Routes, Routes]

    @abstractmethod
    def see(self, minute: Minute, counts: Int64s, joiners: Joiners) -> None:
        """What the joiners did with tuples that are `counts` by side and key."""


class Fixed(Routing):
    """Schemes that never change their mind."""

    def __init__(self, routes: Routes) -> None:
        self.routes = (routes, routes)

    @classmethod
    def hashing(cls, hashes: Int32s, instances: int) -> Fixed:
        return cls(by_table(Table(instances), hashes))

    @classmethod
    def bistream(cls, hashes: Int32s, instances: int) -> Fixed:
        return cls(in_groups(hashes, instances, instances))

    @classmethod
    def contrand(cls, hashes: Int32s, instances: int, size: int) -> Fixed:
        return cls(in_groups(hashes, instances, size))

    def see(self, minute: Minute, counts: Int64s, joiners: Joiners) -> None:
        pass


class Watched(Routing):
    """Tables of the loop, one for each half. With `scaling` the instances' speeds follow Algorithm 3 of
    Aj-Stream: what a half has in all stays as it is, and goes where instances lag. The loop does not see the
    first `quiet` minutes, in which state only grows."""

    def __init__(
        self, hashes: Int32s, instances: int, settings: Settings, query_id: str = "half",
        foresights: Sequence[Foresight | None] = (None, None), scaling: bool = False, quiet: int = 0,
    ) -> None:  # fmt: skip
        self._hashes, self._scaling, self._quiet = hashes, scaling, quiet
        self._halves = [WatchedHalf(hashes, instances, settings, query_id, one) for one in foresights]
        self.routes = (by_table(Table(instances), hashes),) * 2
        self.moved_rows = 0

    def see(self, minute: Minute, counts: Int64s, joiners: Joiners) -> None:
        self._quiet -= 1
        if self._quiet >= 0:
            return
        routes = []
        for side, half in enumerate(self._halves):
            before, old = half.table, self.routes[side]
            visits = minute.stores[side] + minute.probes[side]
            # A task takes what its rows cost; how fast an instance is just now is no property of them.
            half.see(visits, (minute.busy_seconds * joiners.speeds)[side], counts[side], counts[1 - side])
            routes.append(old if half.table is before else by_table(half.table, self._hashes))
            if half.table is not before:
                self.moved_rows += joiners.move(side, old, routes[-1])
            if self._scaling:
                joiners.speeds[side] = _speeds(minute, side, joiners.speeds[side])
        self.routes = (routes[0], routes[1])


def _speeds(minute: Minute, side: int, now: Floats) -> Floats:
    visits = minute.stores[side] + minute.probes[side]
    latencies = minute.waited_seconds[side] / np.maximum(visits, 1)
    plan = scaled(latencies, visits.astype(np.float64), now, float(len(now)), unit=UNIT)
    speeds = np.maximum(LEAST_SPEED, now + plan.changes)
    return np.asarray(speeds * len(now) / speeds.sum())


@dataclass(frozen=True, eq=False)
class Course:
    """Minute by minute.

    throughput   tuples per second that were done
    latency_ms   of the tuples that left the source: from there to the last instance, in the mean
    loads        max / mean - 1 of stored tuples x tuples that looked (equations 1 and 2), mean of both halves
    work         max / mean - 1 of the instances' seconds of work, mean of both halves
    width        instances that a tuple looked at, in the mean
    """

    throughput: Floats
    latency_ms: Floats
    loads: Floats
    work: Floats
    width: float
    moved_rows: int


def drawn(weights: Floats, rates: Sequence[float], seed: int, first_share: float = 0.5) -> Arrivals:
    """One minute for each row of weights, with so many tuples per second of both streams together, evenly in
    time; a tuple is of the first stream with this chance, and of a key by its weight."""
    generator = np.random.default_rng(seed)
    keys, seconds = list[Int32s](), list[Floats]()
    for minute, (row, rate) in enumerate(zip(weights, rates, strict=True)):
        tuples = round(SECONDS * rate)
        bounds = np.cumsum(row / row.sum())
        found = np.searchsorted(bounds, generator.random(tuples), side="right")
        keys.append(np.minimum(found, len(row) - 1).astype(np.int32))
        seconds.append(SECONDS * (minute + (np.arange(tuples) + 0.5) / max(1, tuples)))
    tuples = sum(map(len, keys))
    return Arrivals(
        np.concatenate(keys),
        (generator.random(tuples) >= first_share).astype(np.int32),
        generator.integers(0, 1 << 40, tuples),
        np.concatenate(seconds),
    )


def run(arrivals: Arrivals, keys: int, routing: Routing, work: Work, minutes: int, panes: int = 5) -> Course:
    """So many minutes by the clock. What is not done then is not counted."""
    joiners = Joiners(arrivals, keys, routing.routes[0].instances, work, panes)
    seen, loads, works = list[Minute](), list[float](), list[float]()
    for number in range(minutes):
        minute = joiners.run(SECONDS * (number + 1.0), routing.routes)
        seen.append(minute)
        queued = joiners.stored.sum(axis=1) * minute.probes
        loads.append(float(np.mean([imbalance_of(half.astype(np.float64)) for half in queued])))
        works.append(float(np.mean([imbalance_of(half) for half in minute.busy_seconds])))
        own = slice(minute.first, joiners.taken)
        places = arrivals.sides[own].astype(np.int64) * keys + arrivals.keys[own]
        routing.see(minute, np.bincount(places, minlength=SIDES * keys).reshape(SIDES, keys), joiners)
    done, left = (np.concatenate([getattr(one, name) for one in seen]) for name in ("done", "emitted"))
    return Course(
        _by_minute(done, None, minutes) / SECONDS,
        1000 * _by_minute(left, done - left, minutes) / np.maximum(1, _by_minute(left, None, minutes)),
        np.array(loads),
        np.array(works),
        sum(int(one.probes.sum()) for one in seen) / max(1, joiners.taken),
        getattr(routing, "moved_rows", 0),
    )


def _by_minute(at: Floats, amounts: Floats | None, minutes: int) -> Floats:
    places = (at // SECONDS).astype(np.int64)
    kept = places < minutes
    weights = None if amounts is None else amounts[kept]
    return np.bincount(places[kept], weights=weights, minlength=minutes).astype(np.float64)
