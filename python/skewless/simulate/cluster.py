"""Who sends and who works: sources, workers, what a tuple costs each worker, and how that changes on the way.

Separate from the simulator because schemes need it too: FISH reasons about the time that a worker takes for a
tuple. A *worker* here is what Spark calls a shuffle partition, a *source* a map task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from skewless.errors import SettingError
from skewless.simulate.compiled import Floats, Int32s
from skewless.simulate.seeds import check_seed

MAX_WORKERS = 1 << 15
SERVICE_SECONDS = 0.001


@dataclass(frozen=True)
class WorkerChange:
    """From tuple number `at` on, a worker takes `service_seconds` for a tuple; None: it has left."""

    at: int
    worker: int
    service_seconds: float | None


@dataclass(frozen=True)
class Cluster:
    """Sources and workers; tuples arrive evenly, at `utilisation` of what the workers can do together.

    >>> cluster = Cluster(4, sources=2, speeds=(1, 1, 2, 2))
    >>> cluster.service_seconds
    array([0.001 , 0.001 , 0.0005, 0.0005])
    >>> round(1 / cluster.arrival_seconds)        # tuples a second: 0.9 of 6,000
    5400
    """

    workers: int
    sources: int = 1
    speeds: Sequence[float] | None = None
    utilisation: float = 0.9
    changes: Sequence[WorkerChange] = ()
    absent: frozenset[int] = field(default_factory=frozenset)
    seed: int = 0

    def __post_init__(self) -> None:
        _check_count("workers", self.workers, MAX_WORKERS)
        _check_count("sources", self.sources, MAX_WORKERS)
        check_seed(self.seed)
        if not 0 < self.utilisation <= 100:
            raise SettingError(
                f"utilisation {self.utilisation} is not a share of the workers' capacity. Give 0.9, for "
                "example."
            )
        if self.speeds is not None:
            _check_speeds(self.speeds, self.workers)
        for change in self.changes:
            _check_change(change, self.workers)
        if not len(self.alive):
            raise SettingError("all workers are absent at the start. Leave at least one.")

    @property
    def service_seconds(self) -> Floats:
        """What one tuple costs each worker at the start."""
        speeds = np.ones(self.workers) if self.speeds is None else np.asarray(self.speeds, dtype=np.float64)
        return SERVICE_SECONDS / speeds

    @property
    def alive(self) -> Int32s:
        """The workers that are there at the start."""
        return np.array([w for w in range(self.workers) if w not in self.absent], dtype=np.int32)

    @property
    def arrival_seconds(self) -> float:
        """The time between two tuples."""
        return float(1 / (self.utilisation * np.sum(1 / self.service_seconds[self.alive])))


def _check_count(name: str, count: int, most: int) -> None:
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= most:
        raise SettingError(f"{count!r} {name}: a whole number from 1 to {most} is needed.")


def _check_speeds(speeds: Sequence[float], workers: int) -> None:
    if len(speeds) != workers:
        raise SettingError(f"{len(speeds)} speeds for {workers} workers. Give one speed for each worker.")
    bad = [speed for speed in speeds if not (math.isfinite(speed) and speed > 0)]
    if bad:
        raise SettingError(f"speed {bad[0]} is not a positive number. A speed of 2 means twice as fast.")


def _check_change(change: WorkerChange, workers: int) -> None:
    if not 0 <= change.worker < workers or change.at < 0:
        raise SettingError(
            f"{change} names no worker: there are {workers}, numbered from 0, and tuples are numbered from 0."
        )
    seconds = change.service_seconds
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise SettingError(
            f"{change}: a tuple takes a positive number of seconds. Give None for a worker that leaves."
        )
