"""Tuples a second of each scheme on one core: routing alone, and routing with all measures.

    python bench/simulate.py [--tuples N] [--workers N] [--sources N] [--z Z] [--keys K] [--json]

Times are processor time of this thread, the best of several runs, so that a busy machine disturbs them less;
compare the rows of one run with each other rather than runs with each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import click
import numpy as np

from skewless.simulate import NAMES, Cluster, in_memory, make, zipf
from skewless.simulate.compiled import Int32s
from skewless.simulate.measures import Measures
from skewless.simulate.streams.stream import Numbered

EXTRA = ("pkg:estimate=global", "pkg:estimate=probed", "greedy:d=8")
CHUNK = 1 << 18
SECONDS = 15.0


@click.command()
@click.option("--tuples", default=4_000_000, show_default=True)
@click.option("--workers", default=32, show_default=True)
@click.option("--sources", default=5, show_default=True)
@click.option("--keys", default=100_000, show_default=True)
@click.option("--z", default=1.2, show_default=True)
@click.option("--runs", default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(*, tuples: int, workers: int, sources: int, keys: int, z: float, runs: int, as_json: bool) -> None:
    stream, cluster = in_memory(zipf(tuples, keys, z)), Cluster(workers, sources)
    told = (
        f"{tuples:,} tuples, {keys:,} keys, z={z}, {sources} sources, {workers} workers: "
        "million tuples per second, one core"
    )
    click.echo(f"{told}\n{'scheme':24}{'routing':>10}{'measured':>10}", err=as_json)
    rows = []
    for spec in (*NAMES, *EXTRA):
        route, measure = measured(stream, spec, cluster, runs)
        row = {
            "scheme": spec,
            "route": tuples / route / 1e6,
            "with_measures": tuples / (route + measure) / 1e6,
        }
        click.echo(f"{spec:24}{row['route']:>10.1f}{row['with_measures']:>10.1f}", err=as_json)
        rows.append(row)
    if as_json:
        click.echo(
            json.dumps(
                {"tuples": tuples, "workers": workers, "sources": sources, "keys": keys, "z": z, "rows": rows}
            )
        )


def measured(stream: Numbered, spec: str, cluster: Cluster, runs: int) -> tuple[float, float]:
    """The best processor time of routing the stream, and of measuring it; a scheme that takes long is run
    fewer times."""
    parts = [slice(i, i + CHUNK) for i in range(0, len(stream.numbers), CHUNK)]
    hashes = stream.hashes[stream.numbers]
    sources = (np.arange(len(hashes)) % cluster.sources).astype(np.int32)
    routes, measures = [], []
    until = time.monotonic() + SECONDS
    while len(routes) < 2 or (len(routes) <= runs and time.monotonic() < until):
        scheme = make(spec, cluster)
        if scheme.needs_counts:
            scheme.prepare(stream.counts())
        out: list[Int32s] = []

        def route(scheme=scheme, out=out) -> None:  # type: ignore[no-untyped-def]
            out.extend(scheme.route(stream.numbers[p], hashes[p], sources[p]) for p in parts)

        def measure(out=out) -> None:  # type: ignore[no-untyped-def]
            sums = Measures(cluster.workers, 100_000)
            for part, workers in zip(parts, out, strict=True):
                sums.add(
                    stream.numbers[part],
                    workers,
                    cluster.alive,
                    cluster.service_seconds,
                    cluster.arrival_seconds,
                )

        routes.append(_seconds(route))
        measures.append(_seconds(measure))
    return min(routes), min(measures)


def _seconds(work: Callable[[], None]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


if __name__ == "__main__":
    main()
