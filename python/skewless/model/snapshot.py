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

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.errors import SettingError
from skewless.model.spread import Spread, changed_keys
from skewless.model.table import Int32s, Table

Floats = NDArray[np.float64]
SIDES = ("", "left", "right", "either")
TINY = 1e-9  # seconds: keys that cost nothing have a side, too


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One window of observation of one exchange. Build it with `of`; the plain constructor wants sorted,
    unique hashes.

    A cost is seconds of task time in the window (or any unit, as long as it is one unit). `epoch` is the
    epoch of the table that routed the window; `sources` are the partitions that table gave the tracked keys.

    Of a join, `sides` says which side of it a split may spread ("left", "right", "either"), and
    `right_shares` how much of each key was on its right. Where the table splits keys, what their rows cost
    where they lay is part of the remainders; `split_costs` and `split_bytes` are those of the same keys with
    each row counted once, however many replicas there are.
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
    sides: str = ""
    right_shares: Floats = field(default_factory=lambda: np.empty(0))
    split_hashes: Int32s = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    split_costs: Floats = field(default_factory=lambda: np.empty(0))
    split_bytes: Floats = field(default_factory=lambda: np.empty(0))
    split_right_shares: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if not len(self.right_shares):
            object.__setattr__(self, "right_shares", np.zeros(len(self.key_hashes)))
        _check_shapes(self)
        for name in ("costs", "state_bytes", "remainder_costs", "remainder_bytes", "right_shares"):
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
        for name in (known.name for known in fields(self)):
            value = getattr(self, name)
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
        sides: str = "",
        right_shares: ArrayLike | None = None,
        holds_splits: bool = False,
    ) -> Snapshot:
        """A snapshot of work that `table` routed; keys in any order, those with one hash are added up.

        The rows of a split key are spread already, so its amounts join the remainders of its targets, with
        each replica (see `Spread`); with `holds_splits` they hold them already, as measured. Give its costs
        and bytes with each row counted once.
        """
        n = table.partitions
        hashes = _hashes(key_hashes)
        amounts = [_floats("costs", costs, len(hashes)), _floats("state_bytes", state_bytes, len(hashes))]
        remainders = [
            _floats("remainder_costs", remainder_costs, n),
            _floats("remainder_bytes", remainder_bytes, n),
        ]
        if right_shares is not None:
            weights = amounts[0] + TINY
            amounts += [weights * _shares(right_shares, len(hashes)), weights]
        hashes, amounts = _merged(hashes, amounts)
        shares = amounts[2] / amounts[3] if right_shares is not None else np.zeros(len(hashes))
        amounts = [*amounts[:2], shares]
        split = np.isin(hashes, table.split_hashes) if table.has_splits else np.zeros(len(hashes), dtype=bool)
        split_hashes, split_amounts = hashes[split], [amount[split] for amount in amounts]
        if split.any():
            spread = Spread.under(table, split_hashes)
            remainders = (
                remainders
                if holds_splits
                else [
                    remainder + spread.loads(*sides_of(amount, split_amounts[2]))
                    for amount, remainder in zip(split_amounts[:2], remainders, strict=True)
                ]
            )
            hashes, amounts = hashes[~split], [amount[~split] for amount in amounts]
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
            sides,
            amounts[2],
            split_hashes,
            *split_amounts,
        )

    @cached_property
    def loads(self) -> Floats:
        """The cost of each partition: its tracked keys and its remainder."""
        return np.bincount(self.sources, weights=self.costs, minlength=self.partitions) + self.remainder_costs

    def loads_under(self, before: Table, after: Table) -> Floats:
        """The cost of each partition if `after` had routed the same work, and not `before`, which did."""
        changed = changed_keys(before, after)
        costs = self.costs_of(changed)
        moved = Spread.under(after, changed).loads(*costs) - Spread.under(before, changed).loads(*costs)
        return np.maximum(self.loads + moved, 0.0)

    def costs_of(self, key_hashes: Int32s) -> tuple[Floats, Floats]:
        """The costs of these keys' left and right rows, each row counted once; 0 of a key that is not
        tracked."""
        return self._of(key_hashes, self.costs, self.split_costs)

    def bytes_of(self, key_hashes: Int32s) -> tuple[Floats, Floats]:
        """The state bytes of these keys' left and right rows, each counted once."""
        return self._of(key_hashes, self.state_bytes, self.split_bytes)

    def _of(self, key_hashes: Int32s, whole: Floats, split: Floats) -> tuple[Floats, Floats]:
        amounts, shares = np.zeros((2, len(key_hashes)))
        for hashes, values, rights in (
            (self.key_hashes, whole, self.right_shares),
            (self.split_hashes, split, self.split_right_shares),
        ):
            if len(hashes):
                at = np.minimum(np.searchsorted(hashes, key_hashes), len(hashes) - 1)
                found = hashes[at] == key_hashes
                amounts[found], shares[found] = values[at[found]], rights[at[found]]
        return sides_of(amounts, shares)

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
            np.array_equal(getattr(self, known.name), getattr(other, known.name)) for known in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside; compare, never use as a key


def sides_of(amounts: Floats, right_shares: Floats) -> tuple[Floats, Floats]:
    """What of these amounts is on the left, and what on the right."""
    return amounts * (1 - right_shares), amounts * right_shares


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


def _shares(values: ArrayLike, length: int) -> Floats:
    shares = _floats("right_shares", values, length)
    if length and float(shares.max()) > 1:
        raise SettingError(f"right_shares hold {shares.max()}. Give shares, from 0 to 1.")
    return shares


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
    if snapshot.sides not in SIDES:
        raise SettingError(f"sides is {snapshot.sides!r}. Give one of {', '.join(map(repr, SIDES))}.")
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
    expected |= {"remainder_costs": per_partition, "remainder_bytes": per_partition, "right_shares": per_key}
    per_split = (len(snapshot.split_hashes),)
    expected |= dict.fromkeys(("split_costs", "split_bytes", "split_right_shares"), per_split)
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


def _route(table: Table, hashes: Int32s) -> Int32s:
    """`table.route` for sorted hashes: looks up the few entries among the many keys instead of the other way
    round."""
    routes = np.mod(hashes, np.int32(table.partitions), dtype=np.int32)
    if len(hashes) and len(table.move_hashes):
        at = np.minimum(np.searchsorted(hashes, table.move_hashes), len(hashes) - 1)
        found = hashes[at] == table.move_hashes
        routes[at[found]] = table.move_targets[found]
    return routes
