"""What the tab "Skewless" in Spark's UI is told: the new batches and swaps of each query, as JSON.

Separate from status and report because it tells only what has changed since the last time: Spark's event
log keeps every word of it. Keys go by their hashes: a value of a key never enters the event log. Its other
half is `QueryView.scala`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from skewless.report.records import BatchRecord, QueryRecord, SwapRecord

TOLD_KEYS = 8
TOLD_BATCHES = 200  # at once: of a query that is new


class News:
    """Remembers what was told; `loop` says what the loop does.

    >>> news = News("the loop is running")
    >>> record = QueryRecord("id-1", "clicks", True, 0, 0, "level")
    >>> news.of([record])
    '[{"id":"id-1","name":"clicks","running":true,"loop":"the loop is running","epoch":0,"entries":0,\
"why":"level","errors":{},"batches":[],"swaps":[]}]'
    >>> news.of([record]) is None
    True
    """

    def __init__(self, loop: str) -> None:
        self.loop = loop
        self._told: dict[str, tuple[int, dict[str, Any]]] = {}  # query -> its last batch, what else was told

    def of(self, records: Iterable[QueryRecord]) -> str | None:
        """What is new, or None."""
        found = [view for record in records if (view := self._view(record)) is not None]
        return json.dumps(found, separators=(",", ":")) if found else None

    def _view(self, record: QueryRecord) -> dict[str, Any] | None:
        last, known = self._told.get(record.query_id, (-1, {}))
        batches = [batch for batch in record.batches if batch.batch > last][-TOLD_BATCHES:]
        swaps = {str(swap.epoch): _swap(record, swap) for swap in record.swaps}
        now = {
            "id": record.query_id,
            "name": record.name,
            "running": record.running,
            "loop": self.loop,
            "epoch": record.epoch,
            "entries": record.entries,
            "why": record.why,
            "errors": record.errors,
        } | swaps
        if now == known and not batches:
            return None
        self._told[record.query_id] = (batches[-1].batch if batches else last, now)
        view = {key: value for key, value in now.items() if key not in swaps}
        view["batches"] = [_batch(batch) for batch in batches]
        view["swaps"] = [swap for epoch, swap in swaps.items() if known.get(epoch) != swap]
        return view


def _batch(batch: BatchRecord) -> dict[str, Any]:
    mean = float(np.mean(batch.loads)) if len(batch.loads) else 0.0
    loads = batch.loads / mean if mean > 0 else np.zeros(len(batch.loads))
    return {
        "batch": batch.batch,
        "at": int(1000 * batch.at),
        "epoch": batch.epoch,
        "millis": batch.batch_ms,
        "predictedMs": None if batch.predicted_ms is None else round(batch.predicted_ms, 1),
        "rows": batch.rows,
        "imbalance": round(batch.imbalance, 4),
        "slots": batch.slots,
        "entries": batch.entries,
        "loads": [round(load, 2) for load in loads.tolist()],
        "hot": [{"hash": k.key_hash, "share": round(k.share, 4)} for k in batch.hot_keys[:TOLD_KEYS]],
    }


def _swap(record: QueryRecord, swap: SwapRecord) -> dict[str, Any]:
    return {
        "batch": swap.batch,
        "epoch": swap.epoch,
        "what": swap.without_values().moved_words,
        "bytes": swap.bytes_moved,
        "pauseMs": swap.pause_ms,
        "before": swap.before,
        "predicted": swap.predicted,
        "realised": record.realised(swap),
        "gain": record.gain_words(swap),
        "why": swap.why,
    }
