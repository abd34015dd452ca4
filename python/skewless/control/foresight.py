"""The forecast of one query in the loop: takes in batches, says what shares the next ones will have.

Separate from the watch because nothing here may disturb it: whatever goes wrong is a word in the status, the
loop plans from the past as it would without a forecast, and the query never notices.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from skewless.control.observed import ObservedBatch
from skewless.control.troubles import words_of
from skewless.forecast import Memory, Scored, make
from skewless.model.snapshot import Floats
from skewless.model.table import Int32s
from skewless.report.records import BatchRecord

NONE = "none"
HORIZON = 3  # windows that a table is made for
FAIR = 3  # windows after which a forecast is believed


class Foresight:
    """By the forecast of this name; `folder` keeps weights over restarts. No method raises."""

    def __init__(self, name: str = NONE, query_id: str = "", folder: str | None = None) -> None:
        self.name, self._failed = name, ""
        self._file = None if folder is None else Path(folder) / f"{query_id}.gru"
        self._memory, self._partitions = Memory(), 0
        self._scored: Scored | None = None
        self._next: dict[int, float] = {}  # shares of the next window, as foreseen
        self._foreseen: tuple[Int32s, Floats] | None = None

    def see(self, batch: ObservedBatch) -> None:
        """A committed batch. One without rows is no window."""
        if self.name == NONE or self._failed or not batch.rows.any():
            return
        try:
            self._see(batch)
        except Exception as error:
            self._failed = words_of(error)
            self._foreseen, self._next = None, {}
            self.close()

    @property
    def foreseen(self) -> tuple[Int32s, Floats] | None:
        """Key hashes, and their mean shares in the next windows; None where the forecast says nothing."""
        return self._foreseen

    @property
    def words(self) -> str:
        """For the status; empty if no forecast was asked for."""
        if self.name == NONE:
            return ""
        if self._failed:
            return f"{self.name} failed, planned from the past: {self._failed}"
        if self._scored is None or self._scored.error is None:
            return f"{self.name}: no forecast could be compared yet"
        why = self._scored.forecaster.why
        error = f"{self._scored.error:.1%} of the rows foreseen at the wrong key"
        return f"{self.name}: {error}, one batch ahead" + (f"; {why}" if why else "")

    def told(self, record: BatchRecord) -> BatchRecord:
        """The record with what was foreseen of its hottest keys; to be asked before the batch is seen."""
        if not self._next or not record.rows:
            return record
        keys = tuple(replace(key, foreseen=self._next.get(key.key_hash, 0.0)) for key in record.hot_keys)
        return replace(record, hot_keys=keys)

    def close(self) -> None:
        """The run is over. A training under way is ended."""
        if self._scored is not None:
            self._scored.forecaster.close()

    def _see(self, batch: ObservedBatch) -> None:
        self._memory.add(batch.key_hashes, np.maximum(batch.key_rows, 0) / batch.rows.sum())
        history = self._memory.history
        if not history.windows:
            return
        scored = self._ready(batch.partitions)
        scored.learn(history)
        found = scored.forecast(history, HORIZON)
        self._next = dict(zip(found.key_hashes.tolist(), found.shares[0].tolist(), strict=True))
        fair = scored.windows >= FAIR
        self._foreseen = (found.key_hashes, found.mean(HORIZON)) if fair else None

    def _ready(self, partitions: int) -> Scored:
        """Made with the first batch, and anew where the number of partitions changes."""
        if self._scored is None or partitions != self._partitions:
            self.close()
            self._scored = Scored(make(self.name, partitions=partitions, file=self._file))
            self._partitions = partitions
        return self._scored
