"""Who holds what, in words and as a picture."""

from __future__ import annotations

from markup import check_html
from skewless.report.placing import ExecutorRecord, PlacedBatch, PlacingRecord, picture

RECORD = PlacingRecord(
    "greedy",
    "level",
    (ExecutorRecord("0", 2, 2, 2, 0.5), ExecutorRecord("10", 2, 1, 2, 0.25, "leaving")),
    (
        PlacedBatch("q", 3, ("0", "0", "10"), (), 0.5),
        PlacedBatch("other", 3, ("0",), (), 0.5),
        PlacedBatch("q", 4, ("0", "10", ""), (1,), 0.25),
    ),
    plans=1,
    moves=2,
    planned_distance=0.1,
    scaling="2 to 4 executors",
    errors={"ValueError: odd": 2},
)


def test_the_words_name_every_executor_and_what_is_planned() -> None:
    text = "\n".join(RECORD.lines)
    assert "executor 10: 1 partition (planned 2), 25% busy with them, 2 slots, leaving" in text
    assert "load distance: 25% of the mean now, 10% planned" in text
    assert "scaling: 2 to 4 executors" in text
    assert "error, 2 times: ValueError: odd" in text


def test_the_picture_shows_partitions_on_executors_over_time_and_what_strayed() -> None:
    html = picture(RECORD, "q", "clicks")
    check_html(html)
    assert "executor 0" in html
    assert "executor 10" in html
    assert html.count("<circle") == 1
    assert "partition" in html
    assert picture(RECORD, "unknown", "clicks") == ""
