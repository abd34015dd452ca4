"""Which routing suits these keys: replays them through every scheme that the operator allows, and recommends
one that Spark can be told to use today, with the call that does it.

Separate from the simulator because it judges. The yardstick is the time of micro-batches against perfect
balance, a batch being as slow as its slowest worker, plus what the scheme moves: a row whose state moves
counts as one more row to process. A gain must be worth having, and costs no more state than it must.

>>> keys = np.concatenate([np.zeros(40_000), np.arange(60_000) % 5000])
>>> advice = advise(keys, workers=8, operator="mergeable")
>>> advice.best, advice.hot[0].name, round(advice.hot[0].fair_shares, 1), advice.gain > 2
('table with splits', '0.0', 3.2, True)
>>> advice.call
'skewless.repartition(df, 8, "key", table=advice.table)'
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from skewless.errors import SettingError
from skewless.model.table import Table
from skewless.simulate.cluster import Cluster
from skewless.simulate.compiled import Int64s
from skewless.simulate.schemes.fixed_table import FixedTable, table_with_splits
from skewless.simulate.simulator import Progress, Result, simulate
from skewless.simulate.streams.stream import Stream, from_array, in_memory
from skewless.wording import shortened

OPERATORS = ("atomic", "mergeable", "join")
WORTH = 1.1  # a gain below this is not worth a change
CLOSE = 1.2  # among schemes within this factor of the fastest, the one with the least state wins
SPLITS = "table with splits"
JOIN = "mixed:widths=auto"  # what the loop does to a stream-stream join

# What Spark can be told to do: move keys for any operator, and for one that can merge also split them by a
# table. The others choose a worker for each row, need the future, or need an entry for every key: they only
# show how far one could get. (Spark can spread all rows, too, but every key then has state everywhere.)
MOVES = ("mixed", "min_table", "min_mig", "llfd", "simple", "readj")
PER_ROW = ("pkg", "greedy:d=4", "d-choices", "w-choices", "fish", "shuffle")
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
    """What was found. `best` is one of `usable`, what Spark can be told to do for the operator, or `hash` if
    none is worth it; `call` is how to tell it, and `table` the table that `call` names, if it names one."""

    stream: str
    workers: int
    operator: str
    tuples: int
    keys: int
    batch: int
    hot: tuple[FrequentKey, ...]
    floor: float  # the best stretch of batches that is possible without splitting a key
    results: tuple[Result, ...]
    usable: tuple[str, ...]
    best: str
    gain: float  # how many times faster batches are than with plain hashing, what is moved counted in
    memory_ratio: float
    moved: float  # state moved on the way, as a share of the rows
    worth_it: bool
    call: str
    table: Table | None
    words: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        fields = asdict(replace(self, table=None))
        for result in fields["results"]:
            del result["points"]
        fields["table"] = None if self.table is None else [[h, list(to)] for h, to in self.table]
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
    """Advice for an operator that keeps one state per key (`atomic`), for a stateless step whose partial
    results are merged later (`mergeable`), or for a stream-stream `join`, of which `keys` are the rows of the
    side that may be split."""
    if operator not in OPERATORS:
        raise SettingError(f"operator {operator!r} is unknown. Choose {' or '.join(OPERATORS)}.")
    cluster = Cluster(workers, sources)
    stream = in_memory(keys if isinstance(keys, Stream) else from_array(keys))
    batch = max(1000, min(100_000, stream.tuples // 50))
    results = [
        simulate(stream, spec, cluster, batch=batch, progress=progress) for spec in schemes_for(operator)
    ]
    counts = stream.counts()
    table = None
    if operator == "mergeable":
        table = table_with_splits(stream.hashes[: len(counts)], counts, workers, mappers=sources)
        split = simulate(stream, FixedTable(cluster, table), cluster, batch=batch, progress=progress)
        results.append(replace(split, scheme=SPLITS))
    usable = ("hash", *MOVES, *{"mergeable": (SPLITS,), "join": (JOIN,)}.get(operator, ()))
    plain, best = results[0], _best([result for result in results if result.scheme in usable])
    gain = plain.batch_stretch / paid(best)
    worth_it = gain >= WORTH
    chosen = best if worth_it else plain
    hot = tuple(_hot(stream, counts, workers))
    floor = _floor(stream, batch, workers)
    call = _call(chosen.scheme, operator, workers)
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
        usable,
        chosen.scheme,
        gain if worth_it else 1.0,
        chosen.memory_ratio,
        moved_share(chosen),
        worth_it,
        call,
        table if chosen.scheme == SPLITS else None,
        (
            *_words(plain, best, worth_it),
            *_how(chosen.scheme, call),
            *_join(chosen.scheme),
            *_limit(operator, floor, hot),
            *_spread(results, chosen, workers),
        ),
    )


def schemes_for(operator: str) -> list[str]:
    """The schemes by name that the operator allows, plain hashing first."""
    beside = {"mergeable": PER_ROW, "join": (JOIN,)}.get(operator, ())
    return ["hash", *MOVES, *beside, *REFERENCES]


def runs_of(operator: str) -> int:
    """How often the stream is replayed, for a progress bar."""
    return len(schemes_for(operator)) + (operator == "mergeable")


def moved_share(result: Result) -> float:
    """The state that was moved, in rows that had made it, as a share of all rows."""
    return result.costs.moved_state / max(1, result.tuples)


def paid(result: Result) -> float:
    """The stretch of batches, with a moved row counted as one more row to process."""
    return result.batch_stretch + moved_share(result)


def _best(usable: list[Result]) -> Result:
    """The scheme with the least state among those that are about as fast as the fastest; then the fastest."""
    fastest = min(paid(result) for result in usable)
    close = [result for result in usable if paid(result) <= CLOSE * fastest]
    return min(close, key=lambda result: (round(result.memory_ratio, 2), paid(result)))


def _call(scheme: str, operator: str, workers: int) -> str:
    """What to write to have Spark do it; nothing for plain hashing."""
    if scheme == SPLITS:
        return f'skewless.repartition(df, {workers}, "key", table=advice.table)'
    if scheme == "hash":
        return ""
    if scheme == JOIN:
        return 'skewless.balance(spark, policy="mixed", splits="auto")'
    balance = f'skewless.balance(spark, policy="{scheme}")'
    return balance if operator != "mergeable" else f'skewless.repartition(df, {workers}, "key") and {balance}'


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
    faster = plain.batch_stretch / paid(best)
    if worth_it:
        yield f"{best.scheme} brings {best.batch_stretch:.2f}, {_state(best)}: {faster:.2f} times as fast."
    elif best is plain:
        yield "Nothing that Spark can be told to do brings more than it costs. Leave it as it is."
    else:
        yield (
            f"The best that Spark can be told to do ({best.scheme}) would bring {best.batch_stretch:.2f}, "
            f"{_state(best)}: not worth a change. Leave it as it is."
        )


def _how(scheme: str, call: str) -> Iterator[str]:
    if call:
        yield f"Use {call}."
    if scheme == SPLITS:
        yield (
            '`advice` is what skewless.advise(df, ..., operator="mergeable") gives. Its table was made from '
            "these very rows: if the keys drift, make it anew, and give it to a running stream with "
            "balancer.publish(query, table)."
        )


def _join(scheme: str) -> Iterator[str]:
    if scheme == JOIN:
        yield (
            "The keys are taken for the rows of the side of a stream-stream join that may be split: either "
            "side of an inner join, the left of a left outer or left semi join, the right of a right outer "
            "join, neither of a full outer one. Rows of the other side are copied to each partition of a "
            "split key. They are not counted here; the loop counts them, and splits where it pays. For "
            "stored rows there is skewless.join."
        )


def _limit(operator: str, floor: float, hot: tuple[FrequentKey, ...]) -> Iterator[str]:
    if operator == "atomic" and floor > 1.05 and hot:
        yield (
            f"The key {shortened(hot[0].name)!r} alone is {hot[0].fair_shares:.1f} workers' work: without "
            f"splitting keys nothing can be better than {floor:.2f}. Spark splits a key in a stream-stream "
            "join (ask again with --operator join), and in a stateless skewless.repartition: if the step is "
            "one whose partial results can be merged, ask again with --operator mergeable."
        )


def _spread(results: list[Result], chosen: Result, workers: int) -> Iterator[str]:
    """What plain Spark has for a step that does not care where a key's rows are."""
    shuffled = next((result for result in results if result.scheme == "shuffle"), None)
    if shuffled is not None and chosen.batch_stretch >= WORTH * shuffled.batch_stretch:
        yield (
            f"A step that keeps nothing per key can do without: df.repartition({workers}) is level "
            f"({shuffled.batch_stretch:.2f}), with {shuffled.memory_ratio:.2f} times the partial results to "
            "merge."
        )


def _state(result: Result) -> str:
    if result.memory > result.keys:
        return f"for {result.memory_ratio:.2f} times the state"
    return (
        f"with {result.costs.table_entries} table entries and state of {moved_share(result):.1%} of the rows "
        "moved on the way"
    )
