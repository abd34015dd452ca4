"""One stream run twice, plainly and balanced, for the demo's report.

Separate from the page because a report of one's own queries has no such pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from skewless.report import svg
from skewless.report.plots import NUMBER, heat_legend
from skewless.report.records import BatchRecord
from skewless.report.status import grid_html


@dataclass(frozen=True)
class Comparison:
    """The same batches under plain Spark and balanced.

    what        the query, in words
    columns, result     some of the rows that came out, to show
    rows        result rows that were compared
    same        whether they were equal
    uncounted   first batches that start Python workers and are left out of the sums
    """

    what: str
    plain: tuple[BatchRecord, ...]
    balanced: tuple[BatchRecord, ...]
    columns: Sequence[str]
    result: Sequence[Sequence[object]]
    rows: int
    same: bool
    uncounted: int = 1

    @property
    def plain_ms(self) -> int:
        return sum(batch.batch_ms for batch in self.plain[self.uncounted :])

    @property
    def balanced_ms(self) -> int:
        return sum(batch.batch_ms for batch in self.balanced[self.uncounted :])

    @property
    def factor(self) -> float:
        return self.plain_ms / max(1, self.balanced_ms)

    @property
    def sentence(self) -> str:
        """
        >>> import numpy as np
        >>> slow, quick = (BatchRecord(1, 0, ms, 10, np.ones(2), 0) for ms in (3000, 2000))
        >>> pair = Comparison("a count", (slow,), (quick,), ("key", "n"), [], 7, same=True, uncounted=0)
        >>> print(pair.sentence)  # doctest: +NORMALIZE_WHITESPACE
        1 batch took 3.0 s in all under plain Spark and 2.0 s balanced: 1.50 times shorter.
        All 7 result rows are the same.
        """
        count = len(self.plain) - self.uncounted
        batches = f"{count} batch" if count == 1 else f"{count} batches"
        equal = f"All {self.rows:,} result rows are the same." if self.same else "THE RESULT ROWS DIFFER."
        return (
            f"{batches} took {self.plain_ms / 1000:.1f} s in all under plain Spark and "
            f"{self.balanced_ms / 1000:.1f} s balanced: {self.factor:.2f} times shorter. {equal}"
        )

    def html(self) -> str:
        frame = svg.Frame(self.plain[0].batch, self.plain[-1].batch)
        times = {
            name: [(batch.batch, float(batch.batch_ms)) for batch in batches[self.uncounted :]]
            for name, batches in (("plain", self.plain), ("balanced", self.balanced))
        }
        cells = [[escape(str(value)) for value in row] for row in self.result]
        loads = [svg.heat(frame, [(b.batch, b.loads) for b in run]) for run in (self.plain, self.balanced)]
        return (
            f"<h2>Plain Spark beside Skewless</h2><p>{escape(self.what)}</p>"
            f"<p><b>{escape(self.sentence)}</b></p>"
            '<h3>Batch time</h3><p class="note">The runs take turns, batch by batch. The first batch of each '
            "starts the Python workers and is left out.</p>"
            f"{svg.legend(list(times))}{svg.curves(frame, times, 'milliseconds', NUMBER)}"
            f'<h3>Rows of each partition, plain</h3><p class="note">Against the mean of the batch.</p>'
            f"{heat_legend()}{loads[0]}<h3>Load of each partition, balanced</h3>{loads[1]}"
            '<h3>The result</h3><p class="note">The largest rows of the last balanced batch.</p>'
            f"{grid_html([escape(c) for c in self.columns], cells)}"
        )
