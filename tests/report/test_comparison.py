from __future__ import annotations

from dataclasses import replace

import numpy as np

from markup import check_html
from records import drifting
from skewless.report.comparison import Comparison
from skewless.report.page import page
from skewless.report.records import BatchRecord


def run(*millis: int) -> tuple[BatchRecord, ...]:
    return tuple(BatchRecord(i, 0, ms, 10, np.arange(1.0, 5.0), 0) for i, ms in enumerate(millis))


PAIR = Comparison(
    "counts <b>", run(9000, 3000, 5000), run(20_000, 2000, 3000), ("k", "n"), [("<a>", 3)], 12, True
)


def test_both_runs_and_the_result_are_drawn_and_the_first_batch_is_not_counted() -> None:
    words = (
        "2 batches took 8.0 s in all under plain Spark and 5.0 s balanced: 1.60 times shorter. "
        "All 12 result rows are the same."
    )
    assert PAIR.sentence == words
    html = page(drifting(5), PAIR)
    text = check_html(html)
    assert words in text
    assert html.count("<svg") == 6 + 3
    assert "<td" in html
    assert "&lt;a&gt;" in html
    assert "counts &lt;b&gt;" in html


def test_rows_that_differ_are_shouted() -> None:
    assert replace(PAIR, same=False).sentence.endswith("THE RESULT ROWS DIFFER.")
