"""What was observed in a window of batches: the tracked keys one by one, the rest as one remainder a
partition.

Separate from the table because a snapshot says what the work was, a table where it goes. A policy reads both.

Two partitions; three tracked keys; what is not tracked costs 1 second in partition 0 and cannot be moved:

>>> snapshot = Snapshot.of(Table(2), [4, 6, 7], costs=[5, 3, 1], state_bytes=[50, 30, 10],
...                        remainder_costs=[1, 0])
>>> snapshot.loads
array([9., 1.])
>>> snapshot.imbalance                    # the heaviest partition carries 1.8 times the mean
0.8
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.errors import SettingError
from skewless.model.table import Int32s, Table

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One window of observation of one exchange. Build it with `of`; the plain constructor wants sorted,
    unique hashes.

    A cost is seconds of task time in the window (or any unit, as long as it is one unit). `epoch` is the
    epoch of the table that routed the window; `sources` are the partitions that table gave the tracked keys.
    """

    partitions: int
    key_hashes: Int32s
    costs: Floats
    state_bytes: Floats
    sources: Int32s
    remainder_costs: Floats
    remainder_bytes: Floats
    batches: tuple[int, ...] = ()
    epoch: int = 0

    def __post_init__(self) -> None:
        _check_shapes(self)
        for name in ("costs", "state_bytes", "remainder_costs", "remainder_bytes"):
            _check_amounts(name, getattr(self, name))
        if len(self.key_hashes) > 1 and not bool(np.all(self.key_hashes[1:] > self.key_hashes[:-1])):
            raise SettingError(
                "the key hashes of a snapshot are not sorted and unique. Build snapshots with Snapshot.of."
            )
        if len(self.sources) and not (
            int(self.sources.min()) >= 0 and int(self.sources.max()) < self.partitions
        ):
            raise SettingError(
                f"a source is not one of the {self.partitions} partitions. Build snapshots with Snapshot.of."
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @classmethod
    def of(
        cls,
        table: Table,
        key_hashes: ArrayLike,
        costs: ArrayLike,
        state_bytes: ArrayLike | None = None,
        *,
        remainder_costs: ArrayLike | None = None,
        remainder_bytes: ArrayLike | None = None,
        batches: tuple[int, ...] = (),
    ) -> Snapshot:
        """A snapshot of work that `table` routed; keys in any order, those with one hash are added up.

        The rows of a split key are spread already, so its amounts join the remainders of its targets in equal
        parts.
        """
        n = table.partitions
        hashes = _hashes(key_hashes)
        amounts = [_floats("costs", costs, len(hashes)), _floats("state_bytes", state_bytes, len(hashes))]
        remainders = [
            _floats("remainder_costs", remainder_costs, n),
            _floats("remainder_bytes", remainder_bytes, n),
        ]
        hashes, amounts = _merged(hashes, amounts)
        if table.has_splits:
            hashes, amounts, remainders = _without_splits(table, hashes, amounts, remainders)
        sources = _route(table, hashes)
        return cls(
            n,
            hashes,
            amounts[0],
            amounts[1],
            sources,
            remainders[0],
            remainders[1],
            tuple(batches),
            table.epoch,
        )

    @cached_property
    def loads(self) -> Floats:
        """The cost of each partition: its tracked keys and its remainder."""
        return np.bincount(self.sources, weights=self.costs, minlength=self.partitions) + self.remainder_costs

    @property
    def imbalance(self) -> float:
        """How far the heaviest partition lies above the mean, as a share of the mean (see `imbalance_of`)."""
        return imbalance_of(self.loads)

    @property
    def total_bytes(self) -> float:
        return float(self.state_bytes.sum() + self.remainder_bytes.sum())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside; compare, never use as a key


def imbalance_of(loads: Floats) -> float:
    """max / mean - 1: 0 is level, 1 means that the heaviest partition has twice the mean; no load at all is
    level.

    One-sided, unlike the paper's |L - mean| / mean: a batch waits for its heaviest partition, never for its
    lightest.

    >>> imbalance_of(np.array([3.0, 1.0])), imbalance_of(np.array([0.0, 0.0]))
    (0.5, 0.0)
    """
    mean = float(loads.mean())
    return float(loads.max()) / mean - 1.0 if mean > 0 else 0.0


def _hashes(key_hashes: ArrayLike) -> Int32s:
    array = np.asarray(key_hashes)
    if array.ndim != 1:
        raise SettingError(f"key hashes have {array.ndim} dimensions. Give one flat array.")
    if array.dtype == np.int32:
        return array
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise SettingError(
            f"key hashes are of type {array.dtype}. Give 32-bit integers, as Spark's hash computes them."
        )
    if array.size and (int(array.min()) < -(1 << 31) or int(array.max()) >= 1 << 31):
        raise SettingError(
            "a key hash does not fit 32 bits. Use the hash that Spark computes (skewless.key_hash)."
        )
    return array.astype(np.int32)


def _floats(name: str, values: ArrayLike | None, length: int) -> Floats:
    if values is None:
        return np.zeros(length)
    try:
        array = np.array(values, dtype=np.float64)  # a copy: the caller's array stays writable, ours does not
    except (TypeError, ValueError) as error:
        raise SettingError(f"{name} are not numbers: {error}. Give one flat array of numbers.") from error
    if array.shape != (length,):
        raise SettingError(f"{name} have shape {array.shape}, not ({length},). Give one number each.")
    _check_amounts(name, array)
    return array


def _check_amounts(name: str, array: Floats) -> None:
    # The sum is NaN or infinite exactly if a value is, or if the values are absurdly large; both are refused.
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()
    if len(array) and not (float(array.min()) >= 0 and np.isfinite(total)):
        bad = array[~(np.isfinite(array) & (array >= 0))]
        worst = bad[0] if len(bad) else "a sum beyond any float"
        raise SettingError(
            f"{name} hold {worst}. Give finite numbers of zero or more; check the cost function."
        )


def _check_shapes(snapshot: Snapshot) -> None:
    if snapshot.partitions < 1:
        raise SettingError(
            f"{snapshot.partitions} partitions: a shuffle has at least 1. Give the shuffle's own number."
        )
    per_key, per_partition = (len(snapshot.key_hashes),), (snapshot.partitions,)
    expected: dict[str, tuple[int, ...]] = {
        "key_hashes": per_key,
        "costs": per_key,
        "state_bytes": per_key,
        "sources": per_key,
    }
    expected |= {"remainder_costs": per_partition, "remainder_bytes": per_partition}
    for name, shape in expected.items():
        array: NDArray[Any] = getattr(snapshot, name)
        if array.shape != shape:
            raise SettingError(f"{name} have shape {array.shape}, not {shape}. Give one number each.")


def _merged(hashes: Int32s, amounts: list[Floats]) -> tuple[Int32s, list[Floats]]:
    """Sorted by hash, the amounts of equal hashes added up; free when the hashes are sorted and unique
    already."""
    if len(hashes) < 2 or bool(np.all(hashes[1:] > hashes[:-1])):
        return hashes.copy(), amounts
    # Amounts break ties between equal hashes, so that not even the rounding of a sum depends on the order of
    # the keys.
    order = np.lexsort((amounts[1], amounts[0], hashes))
    hashes = hashes[order]
    firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    return hashes[firsts], [np.add.reduceat(amount[order], firsts) for amount in amounts]


def _without_splits(
    table: Table, hashes: Int32s, amounts: list[Floats], remainders: list[Floats]
) -> tuple[Int32s, list[Floats], list[Floats]]:
    split = np.isin(hashes, table.split_hashes)
    remainders = [remainder.copy() for remainder in remainders]
    for at in np.flatnonzero(split).tolist():
        targets = list(table.targets(int(hashes[at])))
        for amount, remainder in zip(amounts, remainders, strict=True):
            remainder[targets] += amount[at] / len(targets)
    return hashes[~split], [amount[~split] for amount in amounts], remainders


def _route(table: Table, hashes: Int32s) -> Int32s:
    """`table.route` for sorted hashes: looks up the few entries among the many keys instead of the other way
    round."""
    routes = np.mod(hashes, np.int32(table.partitions), dtype=np.int32)
    if len(hashes) and len(table.move_hashes):
        at = np.minimum(np.searchsorted(hashes, table.move_hashes), len(hashes) - 1)
        found = hashes[at] == table.move_hashes
        routes[at[found]] = table.move_targets[found]
    return routes
