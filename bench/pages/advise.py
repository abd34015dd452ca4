"""The page of advice: `skewless advise` on real streams, at 8, 32 and 128 workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pages.page import Page
from skewless.simulate import ParquetStream, Result, Stream, bursts, drifting_zipf, in_memory, zipf
from skewless.simulate.advise import Advice, advise
from skewless.simulate.streams.stream import first_tuples

WORKERS, LIMIT = (8, 32, 128), 500_000


def build(page: Page, data: Path | None) -> None:
    page.text(
        "# What `skewless advise` says",
        f"At most the first {LIMIT:,} rows of each stream, at 8, 32 and 128 workers. *hash* is how many "
        "times as long as with perfect balance a micro-batch takes today; *without splitting* and *with "
        "splitting* what the recommended scheme for an atomic and for a mergeable operator brings; *bound* "
        "the best that any scheme can do that keeps a key at one worker. Only what Spark can be told to do "
        "is recommended; a table with splits is made from the very rows that it is tried on.",
    )
    every = [(stream.label, n, *both(stream, n)) for stream in streams(data) for n in WORKERS]
    page.table(
        [
            "stream",
            "workers",
            "hash",
            "bound",
            "without splitting",
            "with splitting",
            "hottest key (fair shares)",
        ],
        [[name, n, *cells(atomic, mergeable)] for name, n, atomic, mergeable in every],
    )
    page.text("## What it teaches", lesson([(a, m) for *_, a, m in every]))


def streams(data: Path | None) -> Iterator[Stream]:
    if data is None:
        yield from (zipf(1_000_000, 100_000, z) for z in (0.5, 1.0, 1.5))
        yield drifting_zipf(1_000_000, keys=100_000, z=1.2, round_tuples=500_000)
        yield bursts(500_000)
        return
    for path in sorted(data.glob("*.parquet")):
        yield in_memory(first_tuples(ParquetStream(path, "key"), LIMIT))


def both(stream: Stream, workers: int) -> tuple[Advice, Advice]:
    return advise(stream, workers, "atomic"), advise(stream, workers, "mergeable")


def cells(atomic: Advice, mergeable: Advice) -> list[str]:
    plain = atomic.results[0].batch_stretch
    hottest = f"{atomic.hot[0].name} ({atomic.hot[0].fair_shares:.1f})" if atomic.hot else "-"
    return [f"{plain:.2f}", f"{atomic.floor:.2f}", said(atomic), said(mergeable), hottest]


def said(advice: Advice) -> str:
    if not advice.worth_it:
        return "leave it"
    state = f", state {advice.memory_ratio:.2f}x" if advice.memory_ratio > 1 else ""
    return f"{advice.best}: {chosen(advice).batch_stretch:.2f}{state}"


def chosen(advice: Advice) -> Result:
    return next(result for result in advice.results if result.scheme == advice.best)


def lesson(pairs: list[tuple[Advice, Advice]]) -> str:
    leave = sum(not atomic.worth_it for atomic, _ in pairs)
    bound = sum(atomic.floor > 1.05 for atomic, _ in pairs)
    split = [mergeable for _, mergeable in pairs if mergeable.worth_it]
    state = sorted(advice.memory_ratio for advice in split)
    gains = sorted(advice.gain for advice in split)
    near = [chosen(atomic).batch_stretch / atomic.floor for atomic, _ in pairs if atomic.worth_it]
    return (
        f"In {leave} of {len(pairs)} cases an atomic operator is best left alone: either hashing is nearly "
        f"level, or what a policy gains, less what it moves, is below a tenth. In {bound} cases the "
        "hottest key of a batch alone is more than a worker's fair share, and no table can do better than "
        f"the bound; where a table is worth it ({len(near)} cases) it brings {min(near):.2f} to "
        f"{max(near):.2f} times the bound. An operator that can merge gains {gains[0]:.1f} to "
        f"{gains[-1]:.1f} times in {len(split)} cases, for {state[0]:.2f} to {state[-1]:.2f} times the "
        f"state, half of them for at most {state[(len(state) - 1) // 2]:.2f} times. So the first question is "
        "not which scheme but how many fair shares the hottest key has: above one, only a mergeable operator "
        "can come near level; below, moving keys does much of it. Batches here are small (a fiftieth of the "
        "rows, 10,000 at most: 78 a worker at 128 workers), and small batches are never level by hashing; "
        "larger ones are more so."
    )
