"""One half of a simulated join, watched by the very loop that runs on Spark.

Separate from the course because it stands where Spark stands: it shows a batch and takes a table. All between
the two, from what was seen to what is published, is `control/watch.py`, with its forecast and its policies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skewless.control.foresight import Foresight
from skewless.control.observed import ObservedBatch
from skewless.control.settings import Settings
from skewless.control.watch import Watch
from skewless.model.table import Table
from skewless.simulate.compiled import Floats, Int32s, Int64s

SKETCHED = 1000  # keys that a batch names, as Spark's sketch does by default
BATCH_SECONDS = 60.0


class WatchedHalf:
    """The instances that store one stream, as the partitions of a query. Its left rows are those stored, and
    may be split; the right ones look for partners, at all instances of their key."""

    runId = "simulated"  # noqa: N815
    name = None

    def __init__(
        self, hashes: Int32s, instances: int, settings: Settings, query_id: str = "half",
        foresight: Foresight | None = None,
    ) -> None:  # fmt: skip
        self.id, self._hashes = query_id, hashes
        self._tables, self._batches = [Table(instances)], list[ObservedBatch]()
        self._watch = Watch(
            self, query_id, "", self, settings, clock=lambda: self._seconds, foresight=foresight
        )
        self._watch.step()

    @property
    def table(self) -> Table:
        """The one of the next batch."""
        return self._tables[-1]

    @property
    def _seconds(self) -> float:
        return BATCH_SECONDS * len(self._batches)

    def see(self, visits: Int64s, busy_seconds: Floats, stored: Int64s, probing: Int64s) -> None:
        """What each instance was sent and how long it worked; how many tuples each key had, of either
        stream, copies not counted."""
        rows = stored + probing
        hottest = np.argsort(-rows, kind="stable")[:SKETCHED]
        hottest = hottest[rows[hottest] > 0]
        run_ms = np.round(1000 * busy_seconds).astype(np.int64)
        self._batches.append(
            ObservedBatch(
                len(self._batches),
                self.table.epoch,
                int(run_ms.max()),
                visits,
                100 * visits,
                run_ms,
                self._hashes[hottest],
                rows[hottest],
                sides="left",
                right_rows=probing[hottest],
            )
        )
        self._watch.step()

    # -- what the loop asks of Spark -------------------------------------------------------------------------

    def newest(self, query_id: str, /) -> int:
        return len(self._batches) - 1

    def observed(self, query_id: str, after: int, /) -> list[ObservedBatch]:
        return self._batches[after + 1 :]

    def publish(self, query: Any, table: bytes, /) -> tuple[int, int]:
        self._tables.append(Table.decode(table).with_epoch(len(self._tables)))
        return self.table.epoch, len(self._batches)

    def latest(self, query: Any, /) -> bytes | None:
        return self.table.encode()

    def table_at(self, query: Any, batch: int, /) -> bytes | None:
        return self.table.encode()

    def upcoming(self, query_id: str, /) -> ObservedBatch | None:
        return None

    def obstacle(self, query: Any, /) -> str | None:
        return None

    def swaps(self, query: Any, /) -> list[dict[str, Any]]:
        return []

    def watch(self, query: Any, plan_wait_ms: int, look_ahead: bool, /) -> None: ...

    def decided(self, query_id: str, batch: int, /) -> None: ...

    def unwatch_query(self, query: Any, /) -> None: ...
