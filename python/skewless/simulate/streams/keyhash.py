"""Spark's own 32-bit hash of a key, by the key's type.

Separate from the schemes because it alone decides what "plain Spark" means: hash mod n of these numbers is
the partition that `HashPartitioning` gives the key, so key grouping in the simulator is what the user's job
does today.

>>> first_two = of_int32s(np.array([123]), of_texts(["Spark"]))
>>> int(of_int32s(np.array([2]), first_two)[0])    # Spark's documented example
-1321691492
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.errors import ColumnError
from skewless.simulate.compiled import Int32s, Int64s, compiled

SPARK_SEED = 42
LONG_DIGITS = 18  # Spark keeps a decimal of up to so many digits in a long

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


def of_floats(values: ArrayLike, seed: Seed = SPARK_SEED) -> Int32s:
    """The hash of columns of type float."""
    return of_int32s(float_bits(np.asarray(values, dtype=np.float32)), seed)


def of_doubles(values: ArrayLike, seed: Seed = SPARK_SEED) -> Int32s:
    """The hash of columns of type double."""
    return of_int64s(float_bits(np.asarray(values, dtype=np.float64)), seed)


def float_bits(values: NDArray[np.floating]) -> NDArray[np.signedinteger]:
    """What Spark hashes of a float or a double: its bits, with -0.0 as 0.0 and every NaN as one.

    >>> float_bits(np.array([0.0, -0.0], dtype=np.float32))
    array([0, 0], dtype=int32)
    """
    one_nan = np.where(np.isnan(values), np.array(np.nan, dtype=values.dtype), values) + values.dtype.type(0)
    return np.asarray(one_nan.view(np.int32 if values.dtype.itemsize == 4 else np.int64))


def of_decimals(values: Sequence[Decimal | int], precision: int, seed: int = SPARK_SEED) -> Int32s:
    """The hash of columns of type decimal: that of the digits as a long, or as bytes where a long is too
    short. Each value carries as many digits after the point as its column."""
    digits = [_unscaled(value) for value in values]
    if precision <= LONG_DIGITS:
        return of_int64s(np.array(digits, dtype=np.int64), seed)
    return of_texts(
        [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, signed=True) for n in digits], seed
    )


def _unscaled(value: Decimal | int) -> int:
    """All digits as one number; Decimal's own arithmetic would round beyond 28 of them."""
    if isinstance(value, int):
        return value
    sign, digits, _ = value.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def of_texts(texts: Sequence[str | bytes], seed: int = SPARK_SEED) -> Int32s:
    """The hash of columns of type string and binary. Texts are not held in an array of fixed width: one long
    text would make every other as long, and NULs at the end would be lost."""
    try:
        encoded = [text.encode() if isinstance(text, str) else text for text in texts]
    except UnicodeEncodeError as error:
        raise ColumnError(f"a key is not valid text ({error}). Give texts that UTF-8 can encode.") from error
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
