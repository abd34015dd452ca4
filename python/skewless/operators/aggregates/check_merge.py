"""`check_merge`: whether it matters how rows are cut and in which order partials are merged. Plain Python
over a sample; no Spark."""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skewless.errors import MergeError, SettingError

log = logging.getLogger(__name__)

Same = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class MergeCheck:
    """A check that found no difference: so many cuts, drawn from this seed."""

    seed: int
    cuts: int


def check_merge(
    partial: Callable[[Any], Any],
    merge: Callable[[Any], Any],
    sample: Any,
    *,
    cuts: int = 20,
    seed: int | None = None,
    tolerance: float = 1e-9,
    same: Same | None = None,
) -> MergeCheck:
    """Cuts `sample`, rows of one key, at random, and raises a `MergeError` that names the first difference.

    `sample` is a pyarrow Table, or a pandas DataFrame for functions of those. Partials are the same if they
    have the same rows in any order, floats within `tolerance`; a sketch, whose partials depend on the cut,
    brings its own `same`, such as one that compares estimates.

    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> rows = pa.table({"v": [4, 1, 3, 3]})
    >>> total = lambda table: pa.table({"v": [pc.sum(table["v"]).as_py()]})
    >>> check_merge(total, total, rows, seed=1)
    MergeCheck(seed=1, cuts=20)
    >>> first = lambda table: table.slice(0, 1)
    >>> check_merge(first, first, rows, seed=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    skewless.errors.MergeError: the merge is not commutative: ...
    """
    rows = _Rows.of(sample)
    if rows.count < 3:
        raise SettingError(f"the sample has {rows.count} rows; three at least can be cut in three.")
    seed = random.randrange(1 << 32) if seed is None else seed
    log.info("skewless.check_merge: seed %d", seed)
    check = _Check(partial, merge, same or (lambda one, other: _same(one, other, tolerance)), seed)
    draw = random.Random(seed)
    for _ in range(cuts):
        check.cut(rows, draw)
    return MergeCheck(seed, cuts)


@dataclass(frozen=True)
class _Rows:
    """A Table or DataFrame, so that both can be taken apart and put together."""

    frame: Any
    take: Callable[[Sequence[int]], Any]
    below: Callable[[list[Any]], Any]
    count: int

    @classmethod
    def of(cls, sample: Any) -> _Rows:
        if isinstance(sample, pa.RecordBatch):
            sample = pa.Table.from_batches([sample])
        if isinstance(sample, pa.Table):
            return cls(sample, sample.take, pa.concat_tables, sample.num_rows)
        if hasattr(sample, "iloc"):
            import pandas as pd

            return cls(
                sample,
                lambda numbers: sample.iloc[list(numbers)].reset_index(drop=True),
                lambda frames: pd.concat(frames, ignore_index=True),
                len(sample),
            )
        raise SettingError(
            f"the sample is a {type(sample).__name__}; it takes a pyarrow Table or a pandas DataFrame."
        )


@dataclass(frozen=True)
class _Check:
    partial: Callable[[Any], Any]
    merge: Callable[[Any], Any]
    same: Same
    seed: int

    def cut(self, rows: _Rows, draw: random.Random) -> None:
        """One cut in three parts, and every order of them."""
        order = draw.sample(range(rows.count), rows.count)
        first, second = sorted(draw.sample(range(1, rows.count), 2))
        parts = [order[:first], order[first:second], order[second:]]
        a, b, c = (self.partial(rows.take(part)) for part in parts)
        whole = self.partial(rows.frame)

        def merged(*partials: Any) -> Any:
            return self.merge(rows.below(list(partials)))

        self._schemas(whole, a, b, c)
        all_at_once = merged(a, b, c)
        self._schemas(whole, all_at_once)
        self._compare("not commutative", "merge(a, b)", merged(a, b), "merge(b, a)", merged(b, a))
        for one, two, three in itertools.permutations((a, b, c)):
            self._compare(
                "not commutative", "merge(a, b, c)", all_at_once, "in another order", merged(one, two, three)
            )
        left, right = merged(merged(a, b), c), merged(a, merged(b, c))
        self._compare("not associative", "merge(merge(a, b), c)", left, "merge(a, merge(b, c))", right)
        self._compare("not associative", "merge(merge(a, b), c)", left, "merge(a, b, c)", all_at_once)
        self._compare("not that of the whole", "merge(a, b, c)", all_at_once, "partial(all rows)", whole)

    def _schemas(self, whole: Any, *others: Any) -> None:
        for other in others:
            if _schema(other) != _schema(whole):
                raise MergeError(
                    f"partials are of different schemas: {_schema(whole)} and {_schema(other)} (seed "
                    f"{self.seed}). Give every column its type, also where the rows are few or all null."
                )

    def _compare(self, what: str, name: str, one: Any, other_name: str, other: Any) -> None:
        if not self.same(one, other):
            raise MergeError(
                f"the merge is {what}: {name} gives {_text(one)}, {other_name} gives {_text(other)}, for a "
                f"random cut of the sample (seed {self.seed}). Results would depend on how rows are dealt."
            )


def _schema(frame: Any) -> list[tuple[str, str]]:
    types = frame.schema.types if isinstance(frame, pa.Table) else frame.dtypes
    names = frame.column_names if isinstance(frame, pa.Table) else frame.columns
    return sorted((str(name), str(kind)) for name, kind in zip(names, types, strict=True))


def _rows(frame: Any) -> list[dict[str, Any]]:
    if isinstance(frame, pa.Table):
        return list(frame.to_pylist())
    return list(frame.to_dict("records"))


def _same(one: Any, other: Any, tolerance: float) -> bool:
    left, right = sorted(_rows(one), key=_order), sorted(_rows(other), key=_order)
    return len(left) == len(right) and all(_equal(a, b, tolerance) for a, b in zip(left, right, strict=True))


def _order(row: dict[str, Any]) -> list[str]:
    """An order that a last digit of a float does not change, in all but rare cases."""
    return [f"{name}={_rounded(row[name])}" for name in sorted(row)]


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _equal(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or one == other or math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[k], other[k], tolerance) for k in one)
    if _is_list(one) and _is_list(other):
        pairs: Iterator[tuple[Any, Any]] = zip(one, other, strict=False)
        return len(one) == len(other) and all(_equal(a, b, tolerance) for a, b in pairs)
    return bool(one == other)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (hasattr(value, "tolist") and hasattr(value, "__len__"))


def _text(frame: Any) -> str:
    text = str(_rows(frame)[:5])
    return text if len(text) < 200 else f"{text[:200]} ..."
