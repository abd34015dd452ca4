"""From what was observed to what is remembered: a batch as a record for people.

Separate from the records, which are values that status and report read, because only the control room knows
what was observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from skewless.control.clock import Clock
from skewless.control.costs import seconds_per_row
from skewless.control.observed import ObservedBatch
from skewless.report.records import KEPT_KEYS, BatchRecord, HotKey


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
