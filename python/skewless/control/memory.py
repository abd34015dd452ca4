"""From what was observed to what is remembered: a batch as a record for people.

Separate from the records, which are values that status and report read, because only the control room knows
what was observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from skewless.control.clock import Clock
from skewless.control.costs import seconds_per_row
from skewless.control.observed import ObservedBatch
from skewless.model.plan import PlannedSplit
from skewless.model.split import Split
from skewless.model.spread import Spread, split_under
from skewless.model.table import Table
from skewless.report.records import KEPT_KEYS, BatchRecord, HotKey, SplitRecord


def batch_record(
    observed: ObservedBatch,
    entries: int,
    values: Mapping[int, str] = MappingProxyType({}),
    clock: Clock | None = None,
    predicted_ms: float | None = None,
    saved_ms: float | None = None,
) -> BatchRecord:
    """
    >>> observed = ObservedBatch(3, 0, 900, [6, 2], [0, 0], [600, 200], [4, 5], [5, 2], max_error=1)
    >>> hottest = batch_record(observed, entries=0).hot_keys[0]
    >>> hottest.key_hash, hottest.share, hottest.error
    (4, 0.625, 0.125)
    """
    rows = int(observed.rows.sum())
    loads = observed.rows * seconds_per_row(observed)
    hottest = np.argsort(-observed.key_rows, kind="stable")[:KEPT_KEYS]
    error = min(1.0, observed.max_error / rows) if rows else 0.0
    pairs = zip(observed.key_hashes[hottest].tolist(), observed.key_rows[hottest].tolist(), strict=True)
    hot_keys = tuple(HotKey(k, min(1.0, count / rows), error, values.get(k)) for k, count in pairs if rows)
    clock = clock or Clock.one_slot_each(observed.partitions)
    return BatchRecord(
        observed.batch,
        observed.epoch,
        observed.batch_ms,
        rows,
        loads,
        entries,
        hot_keys,
        imbalance=clock.lost(loads),
        predicted_ms=predicted_ms,
        saved_ms=saved_ms,
        slots=int(observed.slots.sum()),
        at=observed.committed_at,
    )


def split_records(
    table: Table,
    observed: ObservedBatch,
    planned: Mapping[int, PlannedSplit],
    values: Mapping[int, str] = MappingProxyType({}),
) -> tuple[SplitRecord, ...]:
    """The keys that the table splits, with what their replicas cost in this batch.

    >>> observed = ObservedBatch(3, 1, 900, [35, 35], [0, 0], [1, 1], [4], [60], right_rows=[10])
    >>> [split] = split_records(Table(2, {4: (0, 1)}, epoch=1), observed, {})
    >>> split.side, split.width, split.copied_rows
    ('left', 2, 10)
    """
    rows = {key_hash: at for at, key_hash in enumerate(observed.key_hashes.tolist())}
    left, right = (side.astype(np.float64) for side in observed.rows_by_side)
    records = []
    for key_hash in table.split_hashes.tolist():
        grid, plan, at = split_under(table, key_hash), planned.get(key_hash), rows.get(key_hash)
        copied = None
        if at is not None:
            cells = Spread.under(table, [key_hash]).copies(left[at : at + 1], right[at : at + 1])
            copied = round(float(cells[0] - left[at] - right[at]))
        records.append(_split_record(key_hash, grid, values.get(key_hash), plan, copied))
    return tuple(records)


def split_changes(
    planned: Iterable[PlannedSplit], values: Mapping[int, str] = MappingProxyType({})
) -> tuple[SplitRecord, ...]:
    """What a swap changed about splits."""
    return tuple(
        _split_record(split.key_hash, split.after, values.get(split.key_hash), split)
        for split in planned
        if split.changes
    )


def _split_record(
    key_hash: int, grid: Split, value: str | None, plan: PlannedSplit | None, copied: int | None = None
) -> SplitRecord:
    return SplitRecord(
        key_hash,
        grid.side,
        grid.targets,
        1 if plan is None else len(plan.before),
        value,
        copied,
        None if plan is None else plan.copied_bytes,
        None if plan is None else plan.gain,
    )
