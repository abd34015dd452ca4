"""Which scheme suits these keys: replays them through every scheme that the operator allows, and recommends
one.

Separate from the simulator because it judges. The yardstick is the time of micro-batches against perfect
balance, a batch being as slow as its slowest worker; a gain must be worth having, and costs no more state
than it must.

>>> keys = np.concatenate([np.zeros(40_000), np.arange(60_000) % 5000])
>>> advice = advise(keys, workers=8, operator="mergeable")
>>> advice.worth_it, advice.hot[0].name, round(advice.hot[0].fair_shares, 1), advice.gain > 2
(True, '0.0', 3.2, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from skewless.errors import SettingError
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Int64s
from skewless.simulate.simulator import Progress, Result, simulate
from skewless.simulate.streams.stream import Stream, from_array, in_memory

OPERATORS = ("atomic", "mergeable")
WORTH = 1.1  # a gain below this is not worth a change
CLOSE = 1.2  # among schemes within this factor of the fastest, the one with the least state wins

# What Skewless can put to work, and what only shows how far one could get: these need the future or an entry
# for every key.
MOVES = ("mixed", "min_table", "min_mig", "llfd", "simple", "readj")
SPLITS = ("pkg", "greedy:d=4", "d-choices", "w-choices", "fish", "shuffle")
REFERENCES = ("potc", "on-greedy", "off-greedy")


@dataclass(frozen=True)
class FrequentKey:
    """A key that alone is a good part of one worker's work: `fair_shares` 1.0 is all that one worker should
    have."""

    name: str
    tuples: int
    share: float
    fair_shares: float


@dataclass(frozen=True)
class Advice:
    """What was found. `best` is one of the schemes that Skewless can put to work, or `hash` if none is worth
    it."""

    stream: str
    workers: int
    operator: str
    tuples: int
    keys: int
    batch: int
    hot: tuple[FrequentKey, ...]
    floor: float  # the best stretch of batches that is possible without splitting a key
    results: tuple[Result, ...]
    best: str
    gain: float  # how many times faster batches are than with plain hashing
    memory_ratio: float
    worth_it: bool
    words: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        fields = asdict(self)
        for result in fields["results"]:
            del result["points"]
        return fields

    def __str__(self) -> str:
        from skewless.simulate.terminal import advice_text

        return advice_text(self)


def advise(
    keys: ArrayLike | Stream,
    workers: int,
    operator: str = "atomic",
    sources: int = 8,
    progress: Progress | None = None,
) -> Advice:
    """Advice for an operator that keeps one state per key (`atomic`), or that can merge partial ones
    (`mergeable`)."""
    if operator not in OPERATORS:
        raise SettingError(f"operator {operator!r} is unknown. Choose {' or '.join(OPERATORS)}.")
    cluster = Cluster(workers, sources)
    stream = in_memory(keys if isinstance(keys, Stream) else from_array(keys))
    batch = max(1000, min(100_000, stream.tuples // 50))
    results = [
        simulate(stream, spec, cluster, batch=batch, progress=progress)
        for spec in schemes_for(operator, batch)
    ]
    counts = stream.counts()
    best = _best(results)
    plain = results[0]
    gain = plain.batch_stretch / best.batch_stretch
    worth_it = gain >= WORTH
    chosen = best if worth_it else plain
    hot = tuple(_hot(stream, counts, workers))
    floor = _floor(stream, batch, workers)
    return Advice(
        stream.label,
        workers,
        operator,
        stream.tuples,
        int(np.count_nonzero(counts)),
        batch,
        hot,
        floor,
        tuple(results),
        chosen.scheme,
        gain if worth_it else 1.0,
        chosen.memory_ratio,
        worth_it,
        (*_words(plain, best, worth_it), *_limit(operator, floor, hot)),
    )


def schemes_for(operator: str, batch: int) -> list[str]:
    """The schemes that the operator allows, plain hashing first."""
    moves = [f"{policy}:interval={batch}" for policy in MOVES]
    return ["hash", *moves, *(SPLITS if operator == "mergeable" else ()), *REFERENCES]


def runs_of(operator: str) -> int:
    """How often the stream is replayed, for a progress bar."""
    return len(schemes_for(operator, 1))


def _best(results: list[Result]) -> Result:
    """The scheme with the least state among those that are about as fast as the fastest; then the fastest."""
    usable = [result for result in results if result.scheme.partition(":")[0] not in REFERENCES]
    fastest = min(result.batch_stretch for result in usable)
    close = [result for result in usable if result.batch_stretch <= CLOSE * fastest]
    return min(close, key=lambda result: (round(result.memory_ratio, 2), result.batch_stretch))


def _hot(stream: Stream, counts: Int64s, workers: int) -> Iterator[FrequentKey]:
    total = max(1, int(counts.sum()))
    for key in np.argsort(-counts, kind="stable")[:10].tolist():
        share = float(counts[key]) / total
        if share * workers > 0.5 and workers > 1:
            yield FrequentKey(stream.name_of(key), int(counts[key]), share, share * workers)


def _floor(stream: Stream, batch: int, workers: int) -> float:
    """In each batch someone must do all of its hottest key: the mean of max(1, n x hottest share)."""
    keys = np.concatenate([np.zeros(0, dtype=np.int32), *stream.chunks()])
    parts = [keys[first : first + batch] for first in range(0, len(keys), batch)]
    slowest = sum(max(len(part) / workers, int(np.bincount(part).max())) for part in parts)
    return float(slowest / max(len(keys) / workers, 1e-300)) if len(keys) else 1.0


def _words(plain: Result, best: Result, worth_it: bool) -> Iterator[str]:
    yield f"With plain hashing a batch takes {plain.batch_stretch:.2f} times as long as with perfect balance."
    if not worth_it:
        yield (
            f"The best scheme ({_short(best)}) would bring {best.batch_stretch:.2f}: not worth a change. "
            "Leave it as it is."
        )
    else:
        faster = plain.batch_stretch / best.batch_stretch
        yield (
            f"{_short(best)} brings {best.batch_stretch:.2f}: batches are {faster:.2f} times as fast, "
            f"{_state(best)}."
        )


def _limit(operator: str, floor: float, hot: tuple[FrequentKey, ...]) -> Iterator[str]:
    if operator == "atomic" and floor > 1.05 and hot:
        yield (
            f"The key {hot[0].name!r} alone is {hot[0].fair_shares:.1f} workers' work: without splitting "
            f"keys nothing can be better than {floor:.2f}. If your operator can merge partial results, ask "
            "again with the operator 'mergeable'."
        )


def _short(result: Result) -> str:
    return result.scheme.partition(":interval")[0]


def _state(result: Result) -> str:
    if result.memory > result.keys:
        return f"for {result.memory_ratio:.2f} times the state"
    moved = result.costs.moved_state / max(1, result.tuples)
    return (
        f"with {result.costs.table_entries} table entries; "
        f"state of {moved:.1%} of the rows is moved on the way"
    )
