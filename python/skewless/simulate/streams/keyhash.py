"""Spark's own 32-bit hash of a key, for arrays of integers and for strings.

Separate from the schemes because it alone decides what "plain Spark" means: hash mod n of these numbers is
the partition that `HashPartitioning` gives the key, so key grouping in the simulator is what the user's job
does today.

>>> first_two = of_int32s(np.array([123]), of_texts(["Spark"]))
>>> int(of_int32s(np.array([2]), first_two)[0])    # Spark's documented example
-1321691492
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.simulate.compiled import Int32s, Int64s, compiled

SPARK_SEED = 42

Seed = int | NDArray[np.generic]


def of_int32s(values: ArrayLike, seed: Seed = SPARK_SEED) -> Int32s:
    """The hash of columns of type byte, short, int, date and boolean.

    >>> of_int32s([0, 1])
    array([ 933211791, -559580957], dtype=int32)
    """
    word = np.asarray(values).astype(np.int32).view(np.uint32)
    return _finish(_mix_in(_seeds(seed, len(word)), word), 4)


def of_int64s(values: ArrayLike, seed: Seed = SPARK_SEED) -> Int32s:
    """The hash of columns of type long and timestamp.

    >>> of_int64s([0, 1])
    array([-1670924195, -1712319331], dtype=int32)
    """
    word = np.asarray(values).astype(np.int64).view(np.uint64)
    low, high = (word & np.uint64(0xFFFFFFFF)).astype(np.uint32), (word >> np.uint64(32)).astype(np.uint32)
    return _finish(_mix_in(_mix_in(_seeds(seed, len(word)), low), high), 8)


def of_doubles(values: ArrayLike, seed: Seed = SPARK_SEED) -> Int32s:
    """The hash of columns of type double: that of its bits, with -0.0 as 0.0."""
    return of_int64s((np.asarray(values, dtype=np.float64) + 0.0).view(np.int64), seed)


def of_texts(texts: Sequence[str | bytes], seed: int = SPARK_SEED) -> Int32s:
    """The hash of columns of type string and binary."""
    encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return _of_bytes(np.frombuffer(b"".join(encoded) or b"\0", dtype=np.uint8), ends, np.uint32(seed))


def _seeds(seed: Seed, length: int) -> NDArray[np.uint32]:
    return np.broadcast_to(np.asarray(seed).astype(np.int64).astype(np.uint32), (length,))


def _rotate(x: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _mix_in(state: NDArray[np.uint32], word: NDArray[np.uint32]) -> NDArray[np.uint32]:
    word = _rotate(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotate(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(state: NDArray[np.uint32], length: int) -> Int32s:
    x = state ^ np.uint32(length)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (x ^ (x >> np.uint32(16))).view(np.int32)


@compiled
def _mixed(state: np.uint32, word: np.uint32) -> np.uint32:
    word = np.uint32(word * np.uint32(0xCC9E2D51))
    word = np.uint32((word << np.uint32(15)) | (word >> np.uint32(17)))
    state = np.uint32(state ^ np.uint32(word * np.uint32(0x1B873593)))
    state = np.uint32((state << np.uint32(13)) | (state >> np.uint32(19)))
    return np.uint32(np.uint32(state * np.uint32(5)) + np.uint32(0xE6546B64))


@compiled
def _of_bytes(data: NDArray[np.uint8], ends: Int64s, seed: np.uint32) -> Int32s:
    hashes = np.empty(len(ends) - 1, dtype=np.uint32)
    for i in range(len(hashes)):
        first, end, state = ends[i], ends[i + 1], seed
        whole = first + (end - first) // 4 * 4
        for at in range(first, whole, 4):
            word = np.uint32(data[at]) | np.uint32(data[at + 1]) << np.uint32(8)
            word |= np.uint32(data[at + 2]) << np.uint32(16) | np.uint32(data[at + 3]) << np.uint32(24)
            state = _mixed(state, np.uint32(word))
        for at in range(whole, end):  # Spark mixes each byte of the tail by itself, sign-extended
            state = _mixed(state, np.uint32(np.int32(np.int8(data[at]))))
        x = np.uint32(state ^ np.uint32(end - first))
        x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        x = np.uint32((x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        hashes[i] = x ^ (x >> np.uint32(16))
    return hashes.view(np.int32)
