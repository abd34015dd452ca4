"""Keys that follow a law: the synthetic streams of the papers.

Separate from streams.py because these are recipes, each with its source. All are drawn from a seed, and
give the same keys each time they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from skewless.errors import SettingError
from skewless.simulate.compiled import Floats, Int32s, Int64s, compiled
from skewless.simulate.seeds import check_seed
from skewless.simulate.streams import keyhash
from skewless.simulate.streams.stream import CHUNK, Stream


class Drawn(Stream):
    """Keys drawn from laws, one after another: `stages` yields (tuples, share of each key number)."""

    def __init__(
        self,
        label: str,
        tuples: int,
        keys: int,
        stages: Callable[[], Iterator[tuple[int, Floats]]],
        seed: int,
    ) -> None:
        self.label, self.tuples, self.stages, self.seed = label, tuples, stages, check_seed(seed)
        self._hashes = _key_hashes(keys, self.seed)

    def chunks(self) -> Iterator[Int32s]:
        generator = np.random.default_rng(self.seed)
        left = self.tuples
        for tuples, shares in self.stages():
            alias, keep = _alias(shares / shares.sum())
            stage = min(tuples, left)
            for first in range(0, stage, CHUNK):
                size = min(CHUNK, stage - first)
                yield _draw(alias, keep, generator.random(size))
            left -= stage

    @property
    def hashes(self) -> Int32s:
        return self._hashes


def zipf(tuples: int, keys: int, z: float, seed: int = 0) -> Stream:
    """Zipf's law, key 0 the most frequent (PKG paper, section 6.1, ZF).

    >>> chunk = next(zipf(1000, keys=100, z=1.5).chunks())
    >>> bool(np.bincount(chunk).argmax() == 0)
    True
    """
    shares = zipf_shares(keys, z)
    return Drawn(f"zipf z={z:g} K={keys}", _size(tuples), keys, lambda: iter([(tuples, shares)]), seed)


def zipf_shares(keys: int, z: float) -> Floats:
    """The share of each rank."""
    if not 1 <= keys <= 1 << 30:
        raise SettingError(f"{keys} keys: give a number from 1 to {1 << 30}.")
    if not 0 <= z <= 100:
        raise SettingError(f"z={z}: Zipf's exponent is 0 (uniform) or more.")
    weights = 1 / np.arange(1, keys + 1, dtype=np.float64) ** z
    return np.asarray(weights / weights.sum())


def from_weights(tuples: int, weights: Floats, seed: int = 0) -> Stream:
    """Keys with these relative frequencies."""
    shares = np.asarray(weights, dtype=np.float64)
    if (
        shares.ndim != 1
        or not len(shares)
        or not np.isfinite(shares).all()
        or shares.min() < 0
        or shares.sum() <= 0
    ):
        raise SettingError("weights must be finite, not negative, and not all zero. Give one for each key.")
    return Drawn("weights", _size(tuples), len(shares), lambda: iter([(tuples, shares)]), seed)


def drifting_zipf(
    tuples: int, *, keys: int = 100_000, z: float = 1.5, round_tuples: int = 5_000_000, seed: int = 0
) -> Stream:
    """FISH's time-evolving Zipf (FISH paper, section 6.1): in each round the law holds for the first 80 % of
    the tuples; in the rest the ranks are reversed, so that the coldest keys are hot. (The paper's formula for
    the rest did not survive in our copy: reversed ranks are our reading.)"""
    shares = zipf_shares(keys, z)
    first = max(1, round_tuples * 8 // 10)

    def stages() -> Iterator[tuple[int, Floats]]:
        while True:
            yield first, shares
            yield max(1, round_tuples - first), shares[::-1]

    return Drawn(f"drifting zipf z={z:g} K={keys}", _size(tuples), keys, _until(tuples, stages), seed)


def fluctuating(
    tuples: int,
    *,
    keys: int = 1_000_000,
    z: float = 0.85,
    f: float = 1.0,
    interval: int = 1_000_000,
    workers: int = 15,
    seed: int = 0,
) -> Stream:
    """The Mixed paper's fluctuation (section V): Zipf, and at the start of each interval frequencies are
    swapped between keys of different workers until some worker's load has changed by the rate f, or for
    100,000 swaps: with the paper's own z and number of workers, swaps at random never change a load by much
    more than half."""
    base, home = (
        zipf_shares(keys, z),
        _key_hashes(keys, check_seed(seed)).astype(np.int64) % workers,
    )
    if not 0 <= f <= 100:
        raise SettingError(f"f={f}: the fluctuation rate is 0 or more.")

    def stages() -> Iterator[tuple[int, Floats]]:
        generator, shares = np.random.default_rng(seed + 1), base.copy()
        while True:
            yield interval, shares.copy()
            _swap(shares, home, _heaviest(shares), _pairs(generator, keys), workers, f)

    return Drawn(f"fluctuating z={z:g} f={f:g} K={keys}", _size(tuples), keys, _until(tuples, stages), seed)


def bursts(
    tuples: int, *, keys: int = 3000, z: float = 1.0, every: int = 50_000, height: float = 0.1, seed: int = 0
) -> Stream:
    """Like the cashtags of the PKG paper (section 6.1, Fig. 3): Zipf, and every now and then another key
    takes a tenth of the stream and fades."""
    base = zipf_shares(keys, z)
    if not 0 <= height < 1:
        raise SettingError(f"height={height}: a burst takes a share from 0 to below 1.")

    def stages() -> Iterator[tuple[int, Floats]]:
        generator, excess = np.random.default_rng(seed + 1), np.zeros(keys)
        while True:
            excess *= 0.5
            excess[generator.integers(keys)] += height
            yield every, base * (1 - min(excess.sum(), 0.99)) + excess

    return Drawn(f"bursts z={z:g} K={keys}", _size(tuples), keys, _until(tuples, stages), seed)


class LogNormal(Stream):
    """Each key is a log-normal number, rounded (PKG paper, section 6.1). That the paper rounds to the nearest
    is our finding: it alone gives Table 1's shares of the hottest key, 14.71 % and 7.01 %. Only the distinct
    numbers are kept."""

    def __init__(self, tuples: int, mu: float, sigma: float, seed: int = 0) -> None:
        self.tuples, self.mu, self.sigma, self.seed = _size(tuples), mu, sigma, check_seed(seed)
        self.label = f"log-normal mu={mu:g} sigma={sigma:g}"
        self.numbers: dict[int, int] = {}
        self.names: list[int] = []
        self._hashes = np.zeros(0, dtype=np.int32)

    def chunks(self) -> Iterator[Int32s]:
        generator = np.random.default_rng(self.seed)
        for first in range(0, self.tuples, CHUNK):
            size = min(CHUNK, self.tuples - first)
            yield self._number(np.rint(generator.lognormal(self.mu, self.sigma, size)).astype(np.int64))

    def _number(self, keys: Int64s) -> Int32s:
        values, first, where = np.unique(keys, return_index=True, return_inverse=True)
        fresh = [int(value) for value in values[np.argsort(first)] if value not in self.numbers]
        self.names += fresh
        self.numbers.update(zip(fresh, range(len(self.numbers), len(self.names)), strict=True))
        self._hashes = np.concatenate([self._hashes, keyhash.of_int64s(np.array(fresh, dtype=np.int64))])
        return np.fromiter((self.numbers[value] for value in values.tolist()), np.int32, len(values))[where]

    @property
    def hashes(self) -> Int32s:
        return self._hashes

    def name_of(self, key: int) -> str:
        return str(self.names[key])


def lognormal_1(tuples: int = 10_000_000, seed: int = 0) -> Stream:
    """LN1: mu 1.789, sigma 2.366 (PKG paper, section 6.1)."""
    return LogNormal(tuples, 1.789, 2.366, seed)


def lognormal_2(tuples: int = 10_000_000, seed: int = 0) -> Stream:
    """LN2: mu 2.245, sigma 1.133 (PKG paper, section 6.1)."""
    return LogNormal(tuples, 2.245, 1.133, seed)


def _key_hashes(keys: int, seed: int) -> Int32s:
    """Other seeds have other keys, and so other places for them."""
    return keyhash.of_int64s(np.arange(keys) + (seed << 32))


def _size(tuples: int) -> int:
    if not 0 <= tuples <= 10**12:
        raise SettingError(f"{tuples} tuples: give 0 or more.")
    return int(tuples)


def _until(
    tuples: int, stages: Callable[[], Iterator[tuple[int, Floats]]]
) -> Callable[[], Iterator[tuple[int, Floats]]]:
    def finite() -> Iterator[tuple[int, Floats]]:
        left = tuples
        for size, shares in stages():
            if left <= 0:
                return
            yield size, shares
            left -= size

    return finite


HEAD = 1000  # only swaps with the heaviest keys change a load visibly


def _heaviest(shares: Floats) -> Int64s:
    return np.asarray(np.argsort(-shares, kind="stable")[:HEAD])


def _pairs(generator: np.random.Generator, keys: int) -> Int64s:
    """Pairs to swap: one of the heaviest, by its place among them, and any key."""
    return np.stack(
        [generator.integers(0, min(keys, HEAD), 100_000), generator.integers(0, keys, 100_000)], axis=1
    )


@compiled
def _swap(shares: Floats, home: Int64s, heaviest: Int64s, pairs: Int64s, workers: int, f: float) -> None:
    before = np.zeros(workers)
    for key in range(len(shares)):
        before[home[key]] += shares[key]
    now = before.copy()
    for i in range(len(pairs)):
        if np.max(np.abs(now - before) / now) >= f:
            return
        a, b = heaviest[pairs[i, 0]], pairs[i, 1]
        if home[a] != home[b]:
            now[home[a]] += shares[b] - shares[a]
            now[home[b]] += shares[a] - shares[b]
            shares[a], shares[b] = shares[b], shares[a]
            heaviest[pairs[i, 0]] = b


@compiled
def _alias(shares: Floats) -> tuple[Int32s, Floats]:
    """Walker's tables: a key is drawn with one random number, however many keys there are."""
    keys = len(shares)
    keep, alias = shares * keys, np.arange(keys).astype(np.int32)
    low, high = np.empty(keys, dtype=np.int32), np.empty(keys, dtype=np.int32)
    lows, highs = 0, 0
    for key in range(keys):
        if keep[key] < 1.0:
            low[lows], lows = key, lows + 1
        else:
            high[highs], highs = key, highs + 1
    while lows > 0 and highs > 0:
        lows -= 1
        poor, rich = low[lows], high[highs - 1]
        alias[poor] = rich
        keep[rich] -= 1.0 - keep[poor]
        if keep[rich] < 1.0:
            highs -= 1
            low[lows], lows = rich, lows + 1
    for i in range(lows):  # left over by rounding only
        keep[low[i]] = 1.0
    return alias, keep


@compiled
def _draw(alias: Int32s, keep: Floats, uniform: Floats) -> Int32s:
    out = np.empty(len(uniform), dtype=np.int32)
    for i in range(len(uniform)):
        scaled = uniform[i] * len(keep)
        key = int(scaled)
        out[i] = key if scaled - key < keep[key] else alias[key]
    return out
