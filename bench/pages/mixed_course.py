"""Interval after interval under a table policy: what was planned, and what the next interval made of it.

Separate from the simulator because no tuple is routed here: the loads of an interval are known exactly, so
that what a plan promises and what it comes to can be told from the noise of drawing. `Course` is the
stream, `replay` the policy on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from skewless import policies
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot, imbalance_of
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.simulate.streams import keyhash
from skewless.simulate.streams.generators import fluctuating, zipf_shares
from skewless.simulate.streams.stream import Stream

Floats = NDArray[np.float64]
Fluctuation = Literal["falls", "rises", "stirred"]


@dataclass(frozen=True, eq=False)
class Course:
    """The load of each key in each interval; hashes sorted and unique."""

    hashes: NDArray[np.int32]
    loads: Sequence[Floats]

    @classmethod
    def of(cls, hashes: NDArray[np.int32], loads: Sequence[Floats]) -> Course:
        unique, number = np.unique(hashes, return_inverse=True)
        return cls(unique, [np.bincount(number, weights=load, minlength=len(unique)) for load in loads])

    def imbalance(self, interval: int, table: Table) -> float:
        weights = self.loads[interval]
        return imbalance_of(
            np.bincount(table.route(self.hashes), weights=weights, minlength=table.partitions)
        )

    def hashed(self, workers: int) -> float:
        """The mean max / mean under plain hashing, the first interval left out as everywhere."""
        return 1 + float(np.mean([self.imbalance(i, Table(workers)) for i in range(1, len(self.loads))]))


@dataclass(frozen=True)
class Step:
    """One interval: max / mean as planned, max / mean of the next interval, and what the plan cost."""

    planned: float
    realised: float
    moved: float  # state bytes moved, as a share of all
    entries: int
    cpu_ms: float  # of planning
    plan: Plan | None  # none where the interval was within the tolerance already


def replay(
    course: Course,
    policy: str,
    limits: Limits,
    workers: int,
    *,
    window: int = 5,
    memory: int = 1,
    decay: float = 1.0,
    aim: float = 1.0,
    ahead: int = 0,
    late: int = 0,
) -> list[Step]:
    """Plans after each interval whose imbalance is above the limit, starting from an empty table.

    State reaches back over `window` intervals, cost over `memory`, where each counts `decay` times as much as
    the one after it. A plan aims at the share `aim` of the tolerance. With `ahead` 1 it is made from the
    loads of the very interval that it will route, as if every batch were looked at before it is routed. With
    `late` 1 it comes an interval too late.
    """
    steps, table, coming = [], Table(workers), [Table(workers)] * late
    for now in range(len(course.loads) - 1):
        seen = now + ahead
        cost = _sum(course.loads[max(0, seen - memory + 1) : seen + 1], decay)
        state = _sum(course.loads[max(0, now - window + 1) : now + 1])
        snapshot = Snapshot.of(table, course.hashes, cost, state)
        plan, started = (
            None,
            time.process_time(),
        )  # a shared machine's clock would say more about its other work
        if snapshot.imbalance > limits.max_imbalance:
            plan = policies.get(policy)(
                snapshot, table, replace(limits, max_imbalance=aim * limits.max_imbalance)
            )
            table = plan.table
        cpu_ms = 1000 * (time.process_time() - started)
        coming.append(table)
        in_force = coming.pop(0) if late else coming.pop()
        planned = snapshot.imbalance if plan is None else plan.imbalance_after
        moved = 0.0 if plan is None else plan.bytes_moved / max(snapshot.total_bytes, 1e-300)
        steps.append(
            Step(1 + planned, 1 + course.imbalance(now + 1, in_force), moved, len(table), cpu_ms, plan)
        )
    return steps


def zipf_course(
    intervals: int,
    fluctuation: Fluctuation = "falls",
    *,
    keys: int,
    f: float,
    workers: int = 15,
    z: float = 0.85,
    every: int = 1,
    seed: int = 0,
) -> Course:
    """Zipf whose frequencies change places at the start of every `every`th interval, by the rate f in one of
    three readings.

    falls      keys of one worker, drawn anew each time from those above the mean, give their frequency for a
               lower one elsewhere, until its load has fallen so far that |L(i) - L(i-1)| / L(i) >= f: the one
               reading that reaches every f of the paper's Table II
    rises      the same upwards, for a worker below the mean; at 1/2 its load doubles, at 1 it would be
               infinite
    stirred    frequencies of the heaviest keys change places at random until some worker's load has changed
               by f, or for 100,000 swaps: `skewless.simulate.fluctuating`
    """
    hashes = keyhash.of_int64s(np.arange(keys) + (seed << 32))
    if fluctuation == "stirred":
        stages = fluctuating(intervals, keys=keys, z=z, f=f, interval=1, workers=workers, seed=seed).stages  # type: ignore[attr-defined]
        kinds = [shares for _, shares in stages()][: -(-intervals // every)]
    else:
        kinds = _one_worker_changes(-(-intervals // every), fluctuation, hashes, z, f, workers, seed)
    return Course.of(hashes, [kinds[i // every] for i in range(intervals)])


def stream_course(stream: Stream, interval: int, most: int) -> Course:
    """The keys of a stream counted by intervals of so many tuples."""
    keys = np.concatenate(list(stream.chunks()))
    parts = [keys[first : first + interval] for first in range(0, len(keys) - interval + 1, interval)]
    return Course.of(
        stream.hashes,
        [np.bincount(part, minlength=len(stream.hashes)).astype(float) for part in parts[:most]],
    )


def _one_worker_changes(
    times: int,
    fluctuation: Fluctuation,
    hashes: NDArray[np.int32],
    z: float,
    f: float,
    workers: int,
    seed: int,
) -> list[Floats]:
    generator = np.random.default_rng(seed + 1)
    home = hashes.astype(np.int64) % workers
    shares = generator.permutation(zipf_shares(len(hashes), z))
    kinds = [shares]
    for _ in range(times - 1):
        shares = shares.copy()
        loads = np.bincount(home, weights=shares, minlength=workers)
        fit = loads >= loads.mean() if fluctuation == "falls" else loads <= loads.mean()
        chosen = generator.choice(np.flatnonzero(fit))
        here = home == chosen
        aim = loads[chosen] / (1 + f) if fluctuation == "falls" else loads[chosen] / (1 - f)
        for _ in range(20):
            if _swap_some(shares, np.flatnonzero(here), np.flatnonzero(~here), aim, generator.permutation):
                break
        kinds.append(shares)
    return kinds


def _swap_some(
    shares: Floats,
    here: NDArray[np.int64],
    elsewhere: NDArray[np.int64],
    aim: float,
    shuffled: Callable[..., NDArray[np.int64]],
) -> bool:
    """Swaps frequencies between keys here and keys elsewhere, in random pairs that lead towards the aim,
    until it is reached."""
    change = aim - shares[here].sum()
    ours, theirs = shuffled(here), shuffled(elsewhere)[: len(here)]
    ours = ours[: len(theirs)]
    gains = shares[theirs] - shares[ours]
    right = np.flatnonzero(gains * change > 0)
    enough = int(np.searchsorted(np.abs(np.cumsum(gains[right])), abs(change))) + 1
    ours, theirs = ours[right[:enough]], theirs[right[:enough]]
    shares[ours], shares[theirs] = shares[theirs], shares[ours]
    return enough <= len(right)


def _sum(loads: Sequence[Floats], decay: float = 1.0) -> Floats:
    """Oldest first, each counting `decay` times as much as the one after it."""
    total = loads[0]
    for load in loads[1:]:
        total = decay * total + load
    return total
