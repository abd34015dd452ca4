"""The one interface of all schemes: keys in, workers out, a chunk of the stream at a time.

Separate from the schemes so that each of them is one short file beside it, and the simulator needs to know
only this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.errors import SettingError
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled, inlined

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Costs:
    """What a scheme did besides routing: state moved (tuples that had made it), entries in its table,
    planning."""

    moved_state: float = 0.0
    table_entries: int = 0
    plans: int = 0
    plan_ms: float = 0.0


class Scheme(ABC):
    """A way to choose the worker of each tuple. An instance holds the state of all sources and sees a stream
    once.

    `splits` says whether one key may be at several workers at a time (then the operator must be able to
    merge); `needs_counts` whether the scheme must know how often each key will come before it starts.
    """

    splits: ClassVar[bool] = False
    needs_counts: ClassVar[bool] = False

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.alive = cluster.alive

    @abstractmethod
    def route(self, keys: Int32s, hashes: Int32s, sources: Int32s) -> Int32s:
        """The worker of each tuple, given its key's number, its key's hash and the source that sends it."""

    def prepare(self, counts: Int64s) -> None:  # noqa: B027 - most schemes need not be prepared
        """Told once, before the stream, how often each key number will come; only if `needs_counts`."""

    def change(self, alive: Int32s, service_seconds: Floats) -> None:
        """Told when workers join, leave or change their speed."""
        self.alive = alive

    def costs(self) -> Costs:
        """What the scheme did so far besides routing."""
        return Costs()


def sizes_to(array: Int32s, length: int, fill: int) -> Int32s:
    """The array itself, or a longer copy with `fill` at its end: key numbers grow as a file is read."""
    if len(array) >= length:
        return array
    grown = np.full((max(length, 2 * len(array)), *array.shape[1:]), fill, dtype=array.dtype)
    grown[: len(array)] = array
    return grown


def number(name: str, value: float, low: float, high: float) -> float:
    """The value, if it lies within its range; NaN lies in none."""
    if not low <= value <= high:
        raise SettingError(f"{name}={value} is out of its range, {low:g} to {high:g}.")
    return value


@compiled
def candidate(key_hash: np.int32, i: int, workers: int, seed: int) -> int:
    """The i-th of a key's workers: plain Spark's for i = 0, an independent hash for each other i."""
    if i == 0:
        return int(np.int64(key_hash) % workers)
    x = np.uint64(np.uint32(key_hash)) + np.uint64(i) * GOLDEN + (np.uint64(seed) << np.uint64(32))
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    x = (x ^ (x >> np.uint64(33))) >> np.uint64(32)
    return int(np.int64((x * np.uint64(workers)) >> np.uint64(32)))


@inlined
def least_loaded(loads: NDArray[Any], s: int, floor: NDArray[Any], place: Int64s, alive: Int32s) -> int:
    """The first worker with the smallest load at source s; floor[s] is then that load.

    Loads only grow, so the search goes on where the last one ended, and a call costs one step on average. Who
    lets a load shrink must set floor[s] to -1.
    """
    while True:
        for at in range(place[s], len(alive)):
            if loads[s, alive[at]] == floor[s]:
                place[s] = at
                return int(alive[at])
        floor[s], place[s] = loads[s, alive[0]], 0
        for at in range(1, len(alive)):
            floor[s] = min(floor[s], loads[s, alive[at]])
