"""What the JVM observed of one micro-batch.

Separate from the costs because this is what was seen, and they are what is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skewless.errors import SettingError
from skewless.model.table import Int32s

Int64s = NDArray[np.int64]
SIDES = ("", "left", "right", "either")


@dataclass(frozen=True, eq=False)
class ObservedBatch:
    """One committed micro-batch of one query, all its routed exchanges added up.

    batch_ms       how long the whole micro-batch took; of one that is still to come, how long it took to look
                   at it
    rows, bytes    what each partition was sent
    run_ms         how long each partition's tasks ran; -1 where nobody knows
    start_ms       when they were launched, from the first launch on; -1 where nobody knows
    executors      the executor that ran them, as a place in `slots`; -1 where nobody knows
    slots          the tasks that each living executor runs at once; empty if nobody knows
    locality_wait_ms   how long a free slot waits before it takes a task whose state is elsewhere
    key_hashes     the heavy hitters of the batch with their estimated rows, `key_rows`
    max_error      by how many rows such an estimate may be off
    sample_rate    the share of the rows that the sketch looked at
    state_hashes   the keys whose state was measured, in this batch or before, with their bytes, `state_bytes`
    partition_state_bytes   all state of each partition; -1 where nobody knows
    committed_at   when the driver heard of the commit, in seconds of the epoch; 0 if nobody knows
    key_values     what some of the hashes stand for, as text for people; empty unless
                   spark.skewless.observe.keyValues is on
    sides          which side of its join a split may spread: "left", "right" or "either"; "" where a key must
                   stay in one partition
    right_rows     of `key_rows`, how many came through the right side's exchange; empty where there is none
    executor_ids   of the executors in `slots`
    busy_ms        how long the tasks of each of them, of all queries and jobs, have run since it came
    cpu_ms         the part of `run_ms` on the CPU; -1 where nobody knows
    remote_bytes   of what each partition's task read of shuffles, what came from another executor's host
    snapshot_versions   of each partition's last snapshot: -1 if there is none, -2 where nobody told
    """

    batch: int
    epoch: int
    batch_ms: int
    rows: Int64s
    bytes: Int64s
    run_ms: Int64s
    key_hashes: Int32s
    key_rows: Int64s
    max_error: int = 0
    sample_rate: float = 1.0
    state_hashes: Int32s = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    state_bytes: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    partition_state_bytes: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    key_values: Mapping[int, str] = field(default_factory=dict)
    start_ms: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    executors: Int32s = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    slots: Int32s = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    locality_wait_ms: int = 0
    committed_at: float = 0.0
    sides: str = ""
    right_rows: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    executor_ids: tuple[str, ...] = ()
    busy_ms: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    cpu_ms: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    remote_bytes: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    snapshot_versions: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        for name in ("start_ms", "executors"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.rows), -1))
        for name in (
            "rows",
            "bytes",
            "run_ms",
            "start_ms",
            "key_rows",
            "right_rows",
            "state_bytes",
            "partition_state_bytes",
        ):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64))
        for name in ("key_hashes", "state_hashes", "executors", "slots"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int32))
        if self.rows.ndim != 1 or not len(self.rows) == len(self.bytes) == len(self.run_ms) > 0:
            sizes = f"{len(self.rows)} rows, {len(self.bytes)} bytes, {len(self.run_ms)} run times"
            raise SettingError(
                f"batch {self.batch} was observed with {sizes}. Give one of each for every partition."
            )
        if len(self.key_hashes) != len(self.key_rows):
            raise SettingError(
                f"batch {self.batch} was observed with {len(self.key_hashes)} key hashes and rows of "
                f"{len(self.key_rows)}. Give the rows of each key hash."
            )
        if len(self.right_rows) not in (0, len(self.key_rows)):
            raise SettingError(
                f"batch {self.batch} was observed with {len(self.key_rows)} key hashes and rows of the right "
                f"side of {len(self.right_rows)}. Give those of each key hash, or none."
            )
        if self.sides not in SIDES:
            raise SettingError(f"sides is {self.sides!r}. Give one of {', '.join(map(repr, SIDES))}.")

    @property
    def rows_by_side(self) -> tuple[Int64s, Int64s]:
        """The left and the right rows of each key; without a join all are left ones."""
        rows = np.maximum(self.key_rows, 0)
        right = np.clip(self.right_rows, 0, rows) if len(self.right_rows) else np.zeros_like(rows)
        return rows - right, right

    @property
    def partitions(self) -> int:
        return len(self.rows)
