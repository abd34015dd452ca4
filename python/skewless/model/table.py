"""The routing table: key hash -> partition (a move) or several partitions (a split), else hash mod n.

Separate from the rest because it is the one type that Python and the JVM share to the byte; `Table.scala`
is its twin and `tests/vectors/tables.json` holds the two together.

A table for 4 partitions that moves one key hash and splits another:

>>> table = Table(4, {1000: 3, -7: (0, 2)}, epoch=1)
>>> table.route([1000, -7, 6])            # moved; split (mapper 0 of 1); by hash: 6 mod 4
array([3, 2, 2], dtype=int32)
>>> Table.decode(table.encode()) == table
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.errors import TableError
from skewless.model import codec
from skewless.model.rules import check, check_hashes, check_rows
from skewless.model.split import Split, slot

Int32s = NDArray[np.int32]


@dataclass(frozen=True)
class Change:
    """One key hash whose targets differ between two tables; plain hashing counts as a target. A split with
    more than one column stands as a `Split`, every other as a tuple."""

    key_hash: int
    before: tuple[int, ...] | Split
    after: tuple[int, ...] | Split


class Table:
    """An immutable routing table for `partitions` partitions.

    `entries` maps a key hash (32-bit, signed, as Spark's `hash`) to one target or to a sequence of targets.
    The order of a split's targets is part of the table: it decides which mapper writes where. In a join a
    sequence splits the left side; a `Split` says which side, or both.

    >>> table = Table(8, {5: Split.right(0, 3), 6: (1, 2)})
    >>> table.split_of(5), table.split_of(6), table.split_of(7)
    (Split(targets=(0, 3), rows=1), Split(targets=(1, 2), rows=2), None)
    """

    __slots__ = (
        "_bytes",
        "epoch",
        "move_hashes",
        "move_targets",
        "partitions",
        "split_hashes",
        "split_offsets",
        "split_rows",
        "split_targets",
    )

    epoch: int
    partitions: int
    move_hashes: Int32s
    move_targets: Int32s
    split_hashes: Int32s
    split_offsets: Int32s
    split_targets: Int32s
    split_rows: Int32s

    def __init__(
        self,
        partitions: int,
        entries: Mapping[int, int | Sequence[int] | Split] | None = None,
        epoch: int = 0,
    ) -> None:
        moves: list[tuple[int, int]] = []
        splits: list[tuple[int, Sequence[int], int]] = []
        for key, target in _mapping({} if entries is None else entries).items():
            key_hash, targets = _key_hash(key), _targets(key, target)
            if len(targets) == 1:
                moves.append((key_hash, targets[0]))
            else:
                rows = target.rows if isinstance(target, Split) else len(targets)
                splits.append((key_hash, targets, rows))
        moves.sort()
        splits.sort(key=lambda split: split[0])
        widths = [len(targets) for _, targets, _ in splits]
        self._fill(
            epoch,
            partitions,
            np.array([h for h, _ in moves], dtype=np.int64),
            np.array([t for _, t in moves], dtype=np.int64),
            np.array([h for h, _, _ in splits], dtype=np.int64),
            np.concatenate([[0], np.cumsum(widths, dtype=np.int64)]),
            np.array([t for _, targets, _ in splits for t in targets], dtype=np.int64),
            np.array([rows for _, _, rows in splits], dtype=np.int64),
        )

    @classmethod
    def of_moves(cls, partitions: int, key_hashes: ArrayLike, targets: ArrayLike, epoch: int = 0) -> Table:
        """A table of moves from two arrays of equal length, in any order.

        >>> len(Table.of_moves(8, [5, -3], [1, 7]))
        2
        """
        hashes = _whole_array("key hashes", key_hashes)
        target_array = _whole_array("targets", targets)
        if len(hashes) != len(target_array):
            raise TableError(
                f"{len(hashes)} key hashes but {len(target_array)} targets. Give one target for each key "
                "hash."
            )
        order = np.argsort(hashes, kind="stable")
        none = np.array([], dtype=np.int64)
        table = cls.__new__(cls)
        table._fill(epoch, partitions, hashes[order], target_array[order], none, np.array([0]), none, none)
        return table

    def _fill(
        self,
        epoch: int,
        partitions: int,
        move_hashes: NDArray[np.int64],
        move_targets: NDArray[np.int64],
        split_hashes: NDArray[np.int64],
        split_offsets: NDArray[np.int64],
        split_targets: NDArray[np.int64],
        split_rows: NDArray[np.int64],
    ) -> None:
        check(epoch, partitions, move_hashes, move_targets, split_hashes, split_offsets, split_targets)
        check_rows(np.diff(split_offsets), split_rows)
        self.epoch = int(epoch)
        self.partitions = int(partitions)
        self.move_hashes = _frozen(move_hashes)
        self.move_targets = _frozen(move_targets)
        self.split_hashes = _frozen(split_hashes)
        self.split_offsets = _frozen(split_offsets)
        self.split_targets = _frozen(split_targets)
        self.split_rows = _frozen(split_rows)
        self._bytes: bytes | None = None

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_bytes" and hasattr(self, "_bytes"):
            raise AttributeError(f"a Table is immutable; make a new one instead of setting {name}")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        return _decode, (self.encode(),)

    # -- routing ---------------------------------------------------------------------------------------------

    def route(
        self,
        key_hashes: ArrayLike,
        map_partition: int = 0,
        mappers: int = 1,
        contents: ArrayLike | None = None,
    ) -> Int32s:
        """The partition of each key hash. The last three arguments matter to split keys only: which mapper of
        how many writes the row, and a hash of the row's content (see `slot`). Of a split over several
        columns a row has no single target: ask `split_of`."""
        hashes = _hash_array(key_hashes)
        routes = (hashes.astype(np.int64) % self.partitions).astype(np.int32)
        found, at = _find(self.move_hashes, hashes)
        routes[found] = self.move_targets[at]
        found, at = _find(self.split_hashes, hashes)
        if len(at):
            start = self.split_offsets[at]
            width = self.split_offsets[at + 1] - start
            if np.any(self.split_rows[at] != width):
                raise TableError(
                    "a row of a key that a join splits on its right side, or on both, goes to several "
                    "partitions. Ask split_of(key_hash) for them."
                )
            content = None if contents is None else np.asarray(contents, dtype=np.int32).ravel()[found]
            routes[found] = self.split_targets[
                start + slot(hashes[found], map_partition, mappers, width, content)
            ]
        return routes

    def targets(self, key_hash: int) -> tuple[int, ...]:
        """Every partition that rows with this key hash may reach: one, or several when the key is split.

        >>> Table(4, {9: (3, 1)}).targets(9), Table(4).targets(9)
        ((3, 1), (1,))
        """
        key_hash = int(_hash_array([_key_hash(key_hash)])[0])
        _, at = _find(self.move_hashes, np.array([key_hash], dtype=np.int32))
        if len(at):
            return (int(self.move_targets[at[0]]),)
        _, at = _find(self.split_hashes, np.array([key_hash], dtype=np.int32))
        if len(at):
            first, end = self.split_offsets[at[0]], self.split_offsets[at[0] + 1]
            return tuple(int(t) for t in self.split_targets[first:end])
        return (int(key_hash) % self.partitions,)

    def split_of(self, key_hash: int) -> Split | None:
        """The split of a key hash, None if it has none."""
        hashes = _hash_array([_key_hash(key_hash)])
        _, at = _find(self.split_hashes, hashes)
        return Split(self.targets(key_hash), int(self.split_rows[at[0]])) if len(at) else None

    # -- content ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.move_hashes) + len(self.split_hashes)

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(key hash, targets) of each entry: the moves in order of hash, then the splits."""
        for key_hash, target in zip(self.move_hashes.tolist(), self.move_targets.tolist(), strict=True):
            yield key_hash, (target,)
        offsets, targets = self.split_offsets.tolist(), self.split_targets.tolist()
        for i, key_hash in enumerate(self.split_hashes.tolist()):
            yield key_hash, tuple(targets[offsets[i] : offsets[i + 1]])

    @property
    def has_splits(self) -> bool:
        return len(self.split_hashes) > 0

    def with_epoch(self, epoch: int) -> Table:
        """The same routes under another epoch."""
        table = Table.__new__(Table)
        arrays = (
            self.move_hashes,
            self.move_targets,
            self.split_hashes,
            self.split_offsets,
            self.split_targets,
            self.split_rows,
        )
        table._fill(epoch, self.partitions, *(array.astype(np.int64) for array in arrays))
        return table

    def updated(self, changes: Iterable[Change]) -> Table:
        """This table with each change's `after` in force; an entry that only repeats plain hashing is
        dropped.

        >>> old, new = Table(4, {1: 3}), Table(4, {2: 0, 5: (1, 2)})
        >>> old.updated(diff(old, new)) == new
        True
        """
        entries = _shaped(self)
        for change in changes:
            if change.after == (change.key_hash % self.partitions,):
                entries.pop(change.key_hash, None)
            else:
                entries[change.key_hash] = change.after
        return Table(self.partitions, entries, self.epoch)

    # -- bytes -----------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The table as bytes: the same for equal tables, in either language."""
        if self._bytes is None:
            offsets = self.split_offsets
            moves, splits = (
                (self.move_hashes, self.move_targets),
                (self.split_hashes, offsets, self.split_targets, self.split_rows),
            )
            self._bytes = codec.pack(self.epoch, self.partitions, *moves, *splits)
        return self._bytes

    @classmethod
    def decode(cls, data: bytes) -> Table:
        """Reads `encode`'s bytes back; anything else is a TableError, found before memory is taken for it."""
        table = cls.__new__(cls)
        table._fill(*codec.unpack(data))
        return table

    @classmethod
    def read(cls, path: str | Path) -> Table:
        """A table from a file that holds `encode`'s bytes; an error names the file."""
        path = Path(path)
        if path.stat().st_size > codec.MAX_BYTES:
            raise TableError(
                f"{path}: {path.stat().st_size} bytes is more than any table takes. Is this a table file?"
            )
        try:
            return cls.decode(path.read_bytes())
        except TableError as error:
            raise TableError(f"{path}: {error}") from error

    @property
    def digest(self) -> str:
        """SHA-256 of the encoded body, in hex: what a pin names a table by."""
        return codec.digest(self.encode()).hex()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(codec.digest(self.encode()))

    def __repr__(self) -> str:
        counts = f"moves={len(self.move_hashes)}, splits={len(self.split_hashes)}"
        return f"Table(partitions={self.partitions}, epoch={self.epoch}, {counts})"


def diff(old: Table, new: Table) -> list[Change]:
    """Every key hash whose targets or their grid differ, in order of hash.

    >>> diff(Table(4, {1: 3}), Table(4, {1: 3, 2: 0}))
    [Change(key_hash=2, before=(2,), after=(0,))]
    """
    if old.partitions != new.partitions:
        raise TableError(
            f"a table for {old.partitions} partitions cannot be compared with one for {new.partitions}: "
            "plain hashing itself differs between them. Compare tables of one query."
        )
    before, after = _shaped(old), _shaped(new)
    changes = []
    for key_hash in sorted(before.keys() | after.keys()):
        by_hash: tuple[int, ...] | Split = (key_hash % old.partitions,)
        change = Change(key_hash, before.get(key_hash, by_hash), after.get(key_hash, by_hash))
        if change.before != change.after:
            changes.append(change)
    return changes


def compose(first: Iterable[Change], second: Iterable[Change]) -> list[Change]:
    """The changes of two steps as one step: `compose(diff(a, b), diff(b, c)) == diff(a, c)`."""
    steps = {change.key_hash: change for change in first}
    for change in second:
        earlier = steps.get(change.key_hash)
        if earlier is not None and earlier.after != change.before:
            raise TableError(
                f"key hash {change.key_hash} goes to {earlier.after} in the first step but leaves "
                f"{change.before} in the second. Compose steps in the order in which they were made."
            )
        before = change.before if earlier is None else earlier.before
        steps[change.key_hash] = Change(change.key_hash, before, change.after)
    return [steps[h] for h in sorted(steps) if steps[h].before != steps[h].after]


def _shaped(table: Table) -> dict[int, tuple[int, ...] | Split]:
    """The entries, with a `Split` where a tuple would not tell its shape."""
    entries: dict[int, tuple[int, ...] | Split] = dict(table)
    for at in np.flatnonzero(table.split_rows != np.diff(table.split_offsets)):
        key_hash = int(table.split_hashes[at])
        entries[key_hash] = Split(tuple(entries[key_hash]), int(table.split_rows[at]))
    return entries


def _decode(data: bytes) -> Table:
    """`Table.decode` as a plain function: PySpark's pickler takes a class method by value, with all of this
    module."""
    return Table.decode(data)


def _find(sorted_hashes: Int32s, wanted: Int32s) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which of `wanted` occur in `sorted_hashes`, and where those occur."""
    if not len(sorted_hashes):
        return np.zeros(len(wanted), dtype=np.bool_), np.array([], dtype=np.intp)
    at = np.minimum(np.searchsorted(sorted_hashes, wanted), len(sorted_hashes) - 1)
    found = sorted_hashes[at] == wanted
    return found, at[found]


def _frozen(values: NDArray[np.int64]) -> Int32s:
    array = values.astype(np.int32)
    array.setflags(write=False)
    return array


def _mapping(entries: object) -> Mapping[object, object]:
    if not isinstance(entries, Mapping):
        raise TableError(
            f"entries are a {type(entries).__name__}. Give a dictionary from key hash to partition, or use "
            "Table.of_moves."
        )
    return entries


def _key_hash(key: object) -> int:
    """A key where its hash belongs is the likeliest mistake: a number in a string must not pass as a hash."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return int(key)
    raise TableError(
        f"{key!r} is a {type(key).__name__}, and a table is keyed on 32-bit hashes, not on keys. Take "
        "the hash of the key from Spark: df.select(skewless.key_hash('key'))."
    )


def _targets(key: object, target: object) -> list[int]:
    values: list[Any] = (
        list(target)
        if isinstance(target, (Sequence, np.ndarray, Split)) and not isinstance(target, (str, bytes))
        else [target]
    )
    if any(isinstance(value, bool) or not isinstance(value, (int, np.integer)) for value in values):
        raise TableError(
            f"the entry of {key!r} leads to {target!r}. Give a partition, a whole number from 0, or several "
            "of them for a split."
        )
    return [int(value) for value in values]


def _whole_array(what: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values).ravel()
    if array.size and array.dtype.kind not in "iu":
        raise TableError(
            f"{what} hold {array[0]!r}, which is no whole number. Key hashes come from skewless.key_hash, "
            "targets are partitions from 0."
        )
    return array.astype(np.int64)


def _hash_array(key_hashes: ArrayLike) -> Int32s:
    array = np.asarray(key_hashes)
    if array.dtype == np.int32:
        return array.ravel()
    whole = _whole_array("key hashes", array)
    check_hashes(whole)
    return whole.astype(np.int32)
