"""Where the keys come from: one interface for arrays, files and generators, a chunk at a time.

Separate from the generators and the file reader because the simulator needs to know only this: keys are
numbered from 0 in order of appearance or of rank, and each number has a hash (Spark's) and a name. A stream
can be read again and is then the same; what is kept grows with the number of keys, not of tuples.

>>> stream = from_array(["a", "b", "a"])
>>> [chunk.tolist() for chunk in stream.chunks()], stream.name_of(1)
([[0, 1, 0]], 'b')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.errors import ColumnError, SettingError
from skewless.simulate.compiled import Int32s, Int64s
from skewless.simulate.streams import keyhash

CHUNK = 1 << 18
NOT_HASHED = "cannot be hashed here. Give integers, texts, floats, bytes, dates or timestamps."
UINT64_DIGITS = 20  # what Spark reads of an unsigned 64-bit integer: decimal(20, 0)


class Stream(ABC):
    """A sequence of keys."""

    label: str = "stream"
    tuples: int = 0  # how many, as far as known

    @abstractmethod
    def chunks(self) -> Iterator[Int32s]:
        """The keys' numbers, in order, some at a time."""

    @property
    @abstractmethod
    def hashes(self) -> Int32s:
        """The hash of each key number given out so far."""

    def name_of(self, key: int) -> str:
        """What the key is called."""
        return str(key)

    def counts(self) -> Int64s:
        """How often each key comes; reads the whole stream once."""
        total = np.zeros(0, dtype=np.int64)
        for chunk in self.chunks():
            counts = np.bincount(chunk, minlength=len(total))
            counts[: len(total)] += total
            total = counts
        return total


class Numbered(Stream):
    """A stream that is already numbered and in memory, with the hash and the name of each number."""

    def __init__(
        self, numbers: Int32s, hashes: Int32s, names: NDArray[np.generic] | None = None, label: str = "array"
    ) -> None:
        self.numbers, self._hashes, self.names, self.label = numbers, hashes, names, label
        self.tuples = len(numbers)

    def chunks(self) -> Iterator[Int32s]:
        for first in range(0, len(self.numbers), CHUNK):
            yield self.numbers[first : first + CHUNK]

    @property
    def hashes(self) -> Int32s:
        return self._hashes

    def name_of(self, key: int) -> str:
        return str(key if self.names is None else self.names[key])


def from_array(keys: ArrayLike, label: str = "array") -> Numbered:
    """A stream of the array's values: integers, texts, floats, bytes, dates or timestamps, numbered in order
    of first appearance."""
    if isinstance(values := _values(keys), list):
        numbers_of: dict[str | bytes, int] = {}
        ranks = (numbers_of.setdefault(value, len(numbers_of)) for value in values)
        numbered, texts = np.fromiter(ranks, np.int32, len(values)), list(numbers_of)
        return Numbered(numbered, keyhash.of_texts(texts), _objects(texts), label)
    names, first, numbers = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return Numbered(rank[numbers], hashes_of(names[order]), names[order], label)


def _values(keys: ArrayLike) -> NDArray[np.generic] | list[str | bytes]:
    """The keys, flat: texts as a list, since an array of fixed width makes each as long as the longest."""
    texts = isinstance(keys, (list, tuple)) and any(isinstance(key, (str, bytes)) for key in keys)
    values = np.asarray(keys, dtype=object if texts else None).ravel()
    if values.dtype.kind in "US":
        return cast(list[str | bytes], values.tolist())
    return values if values.dtype.kind != "O" else _of_objects(values.tolist())


def _of_objects(values: list[Any]) -> NDArray[np.generic] | list[str | bytes]:
    kinds = {type(value) for value in values}
    if type(None) in kinds:
        raise ColumnError("the keys hold missing values. Drop them, or give them a value of their own.")
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ColumnError(f"the keys are of several types ({names}). Give keys of one type.")
    if all(issubclass(kind, (str, bytes)) for kind in kinds):
        return values
    if issubclass(kind := kinds.pop(), datetime):
        return np.array([_in_utc(value) for value in values], dtype="datetime64[us]")
    made = np.array(values, dtype="datetime64[D]" if issubclass(kind, date) else None)
    if made.dtype.kind == "O":
        raise ColumnError(f"keys of type {kind.__name__} {NOT_HASHED}")
    return made


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def _objects(values: list[Any]) -> NDArray[np.generic]:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def hashes_of(values: NDArray[np.generic]) -> Int32s:
    """Spark's hash of a column's values, by the type that Spark reads them as."""
    kind, width = values.dtype.kind, values.dtype.itemsize
    if kind in "bi":
        return keyhash.of_int32s(values) if width <= 4 else keyhash.of_int64s(values)
    if kind == "u":  # Spark has no unsigned types and takes the next larger one
        if width == 8:
            return keyhash.of_decimals(values.tolist(), UINT64_DIGITS)
        return keyhash.of_int32s(values) if width <= 2 else keyhash.of_int64s(values)
    if kind == "f" and width in (4, 8):
        if np.isnan(values).any():
            raise ColumnError("the keys hold NaN. Drop them, or give them a value of their own.")
        return keyhash.of_floats(values) if width == 4 else keyhash.of_doubles(values)
    if kind == "M":
        if np.isnat(values).any():
            raise ColumnError("the keys hold NaT. Drop them, or give them a value of their own.")
        if values.dtype == np.dtype("datetime64[D]"):
            return keyhash.of_int32s(values.astype(np.int64))
        return keyhash.of_int64s(values.astype("datetime64[us]").astype(np.int64))
    raise ColumnError(f"keys of type {values.dtype} {NOT_HASHED}")


def in_memory(stream: Stream) -> Numbered:
    """The same stream, read once and kept: for many schemes over one stream that fits."""
    if isinstance(stream, Numbered):
        return stream
    parts = list(stream.chunks())
    numbers = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    names = (
        _objects([stream.name_of(key) for key in range(len(stream.hashes))])
        if not _named_by_number(stream)
        else None
    )
    return Numbered(numbers, stream.hashes, names, stream.label)


def _named_by_number(stream: Stream) -> bool:
    return type(stream).name_of is Stream.name_of


def first_tuples(stream: Stream, tuples: int) -> Stream:
    """The stream's beginning."""
    if tuples < 0:
        raise SettingError(f"{tuples} tuples: give 0 or more.")
    return _Cut(stream, tuples)


class _Cut(Stream):
    def __init__(self, stream: Stream, tuples: int) -> None:
        self.stream, self.limit, self.label = stream, tuples, stream.label
        self.tuples = min(tuples, stream.tuples)

    def chunks(self) -> Iterator[Int32s]:
        left = self.limit
        for chunk in self.stream.chunks():
            if left <= 0:
                return
            yield chunk[:left]
            left -= len(chunk)

    @property
    def hashes(self) -> Int32s:
        return self.stream.hashes

    def name_of(self, key: int) -> str:
        return self.stream.name_of(key)
