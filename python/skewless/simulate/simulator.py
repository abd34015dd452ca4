"""Runs a stream through a scheme and measures what comes of it.

Separate from the measures (definitions) and the schemes (decisions): this is the loop between them.
Everything follows from the stream's seed and the scheme's; two runs give the same result.

>>> from skewless.simulate.streams.generators import zipf
>>> result = simulate(zipf(100_000, keys=1000, z=1.0), "pkg", Cluster(8))
>>> result.memory_ratio < 2 and result.max_over_mean < 1.001
True
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from skewless.errors import SettingError
from skewless.policies import Policy
from skewless.simulate.catalogue import make
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Int32s
from skewless.simulate.measures import (
    KEYS,
    LARGEST,
    PAIRS,
    SEEN,
    SUM_IMBALANCE,
    SUM_PERFECT,
    SUM_SLOWEST,
    Measures,
)
from skewless.simulate.schemes.scheme import Costs, Scheme
from skewless.simulate.schemes.table_policy import TableScheme
from skewless.simulate.streams.stream import Stream

BATCH = 100_000

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Result:
    """What a scheme made of a stream."""

    scheme: str
    stream: str
    workers: int
    sources: int
    tuples: int
    keys: int
    imbalance: float  # I at the end
    imbalance_fraction: float  # mean of I(t) over all t, divided by the tuples
    max_over_mean: float  # loads at the end
    batch_stretch: float  # time of all micro-batches against perfect balance
    execution_seconds: float
    throughput: float  # tuples per simulated second
    memory: int  # (key, worker) pairs
    latency_p50: float
    latency_p95: float
    latency_p99: float
    costs: Costs
    points: tuple[tuple[int, float], ...]  # (t, I(t))
    route_seconds: float  # real time spent in the scheme

    @property
    def memory_ratio(self) -> float:
        """State against key grouping, which has one for each key."""
        return self.memory / self.keys if self.keys else 1.0


def simulate(
    stream: Stream,
    scheme: str | Scheme | Policy,
    cluster: Cluster,
    *,
    batch: int = BATCH,
    sources: Iterable[Int32s] | None = None,
    progress: Progress | None = None,
) -> Result:
    """One run. `scheme` is a name with options (`pkg`, `fish:alpha=0.2`), a scheme, or a policy: a function
    of (snapshot, table, limits). A policy, by name or as a function, plans once per batch. The sources take
    turns, unless `sources` says, chunk by chunk, which of them sends each tuple."""
    if not isinstance(stream, Stream):
        raise SettingError(f"a {type(stream).__name__} is no stream of keys. Give from_array(keys), say.")
    if not isinstance(cluster, Cluster):
        raise SettingError(f"{cluster!r} is no cluster. Give Cluster(8), for example, for eight workers.")
    if batch < 1:
        raise SettingError(f"batch {batch}: a micro-batch has at least one tuple.")
    maker = _maker(scheme, cluster, batch)
    if maker.needs_counts:
        maker.prepare(stream.counts())
    run = _Run(stream, maker, cluster, batch)
    senders = None if sources is None else iter(sources)
    for chunk in stream.chunks():
        run.take(chunk, None if senders is None else next(senders))
        if progress is not None:
            progress(len(chunk))
    return run.result(_name(scheme))


def _maker(scheme: str | Scheme | Policy, cluster: Cluster, batch: int) -> Scheme:
    if isinstance(scheme, str):
        return make(scheme, cluster, batch)
    if not isinstance(scheme, Scheme):
        if not callable(scheme):
            raise SettingError(f"{scheme!r} is no scheme. Give a name, a Scheme, or a policy's function.")
        return TableScheme(cluster, scheme, interval=batch)
    made_for = scheme.cluster
    if (made_for.workers, made_for.sources) != (cluster.workers, cluster.sources):
        raise SettingError(
            f"the scheme was made for {made_for.workers} workers and {made_for.sources} sources, "
            f"the cluster has {cluster.workers} and {cluster.sources}. Make it for this cluster."
        )
    return scheme


def _name(scheme: str | Scheme | Policy) -> str:
    if isinstance(scheme, str):
        return scheme
    return str(getattr(scheme, "__name__", type(scheme).__name__))


def compare(
    stream: Stream,
    schemes: Sequence[str],
    cluster: Cluster,
    *,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> list[Result]:
    """The same stream through each scheme."""
    return [simulate(stream, scheme, cluster, batch=batch, progress=progress) for scheme in schemes]


class _Run:
    def __init__(self, stream: Stream, scheme: Scheme, cluster: Cluster, batch: int) -> None:
        self.stream, self.scheme, self.cluster = stream, scheme, cluster
        self.measures = Measures(cluster.workers, batch)
        self.alive, self.service_seconds = cluster.alive, cluster.service_seconds.copy()
        self.changes = sorted(cluster.changes, key=lambda change: change.at)
        self.seen, self.route_seconds = 0, 0.0

    def take(self, keys: Int32s, senders: Int32s | None) -> None:
        """Routes a chunk, in parts where workers change on the way."""
        hashes = self.stream.hashes[keys]
        if senders is None:
            senders = ((self.seen + np.arange(len(keys))) % self.cluster.sources).astype(np.int32)
        edges = [
            change.at - self.seen for change in self.changes if self.seen <= change.at < self.seen + len(keys)
        ]
        for first, end in pairwise([0, *edges, len(keys)]):
            while self.changes and self.changes[0].at <= self.seen:
                self._change()
            self._route(keys[first:end], hashes[first:end], senders[first:end])

    def _route(self, keys: Int32s, hashes: Int32s, senders: Int32s) -> None:
        if not len(keys):
            return
        start = time.perf_counter()
        workers = self.scheme.route(keys, hashes, senders)
        self.route_seconds += time.perf_counter() - start
        self.measures.add(keys, workers, self.alive, self.service_seconds, self.cluster.arrival_seconds)
        self.seen += len(keys)

    def _change(self) -> None:
        change = self.changes.pop(0)
        alive = set(self.alive.tolist())
        if change.service_seconds is None:
            alive.discard(change.worker)
        else:
            alive.add(change.worker)
            self.service_seconds[change.worker] = change.service_seconds
        if not alive:
            raise SettingError(f"{change}: then no worker is left. Leave at least one.")
        self.alive = np.array(sorted(alive), dtype=np.int32)
        self.scheme.change(self.alive, self.service_seconds)

    def result(self, name: str) -> Result:
        """The figures at the end of the stream."""
        m = self.measures
        m.finish(self.alive, self.service_seconds)
        seen = int(m.sums[SEEN])
        mean = seen / len(self.alive)
        execution = float(m.free_at.max())
        p50, p95, p99 = (m.latency(q) for q in (0.5, 0.95, 0.99))
        return Result(
            scheme=name,
            stream=self.stream.label,
            workers=self.cluster.workers,
            sources=self.cluster.sources,
            tuples=seen,
            keys=int(m.sums[KEYS]),
            imbalance=float(m.sums[LARGEST] - mean),
            imbalance_fraction=float(m.sums[SUM_IMBALANCE] / seen / seen) if seen else 0.0,
            max_over_mean=float(m.sums[LARGEST] / mean) if seen else 1.0,
            batch_stretch=float(m.sums[SUM_SLOWEST] / m.sums[SUM_PERFECT]) if seen else 1.0,
            execution_seconds=execution,
            throughput=seen / execution if seen else 0.0,
            memory=int(
                m.sums[PAIRS if self.scheme.splits else KEYS]
            ),  # who never splits a key moves its state along
            latency_p50=p50,
            latency_p95=p95,
            latency_p99=p99,
            costs=self.scheme.costs(),
            points=tuple(m.points),
            route_seconds=self.route_seconds,
        )
