from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fake_gateway import LEVEL, SKEWED, Clock, FakeGateway, FakeQuery
from markup import check_html
from records import drifting
from skewless.control.loop import Loop
from skewless.control.pace import Pace
from skewless.control.settings import Settings
from skewless.errors import SettingError
from skewless.report.page import page, summary, write
from skewless.report.records import BatchRecord, QueryRecord, SwapRecord
from skewless.report.status import Status

TITLES = (
    "Load of each partition",
    "Imbalance",
    "Batch time",
    "Hottest keys",
    "Table size",
    "State moved",
    "Swaps",
)


def test_a_report_holds_every_plot_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    status = drifting()
    path = write(tmp_path / "report.html", status)
    html = path.read_text(encoding="utf-8")
    text = check_html(html)
    assert html.startswith("<!DOCTYPE html>")
    assert html.count("<svg") == 6
    for title in TITLES:
        assert f"<h3>{title}</h3>" in html
    [query] = status.queries
    assert query.swaps
    for swap in query.swaps:
        assert html.count(f"<title>{swap}</title>") == 6  # marked in every plot
        assert str(swap.key_hashes[0]) in text
    assert f"hash {query.batches[-1].hot_keys[0].key_hash}" in text
    assert "clicks &lt;b&gt;" in html
    assert "dashed: max_imbalance, 0.1" in text


def test_the_summary_tells_what_the_swaps_gave() -> None:
    [query] = drifting(24).queries
    words = summary(query)
    assert re.match(
        r"24 batches remembered, 0 to 23; \d+ swaps? moved \d+ keys and [\d.]+ kB of state; the longest "
        r"pause",
        words,
    )
    before, since = (
        float(found) for found in re.findall(r"imbalance (\S+) before the first swap, (\S+) since", words)[0]
    )
    assert before > 0.3
    assert since < 0.15
    assert re.search(r"since the last swap batches take \d\.\d\d of what they would under", words)


def test_a_level_query_has_a_report_without_swaps() -> None:
    query = FakeQuery()
    loop = Loop(FakeGateway(query), Settings(), Clock())
    query.run(LEVEL, 3)
    loop.step()
    text = check_html(page(loop.status()))
    assert "3 batches remembered, 0 to 2; no swap; imbalance 0.000" in text
    assert "Swaps" not in text


@pytest.mark.parametrize("rows", [{}, {5: 1}, SKEWED])
@pytest.mark.parametrize("partitions", [1, 2, 300])
@pytest.mark.parametrize("batches", [1, 2, 700])
def test_odd_shapes_are_drawn(rows: dict[int, int], partitions: int, batches: int) -> None:
    query = FakeQuery(partitions=partitions)
    loop = Loop(FakeGateway(query), Settings(), Clock())
    query.run(rows, batches)
    loop.step()
    html = page(loop.status())
    check_html(html)
    assert len(html) < 1_000_000


def test_a_plot_without_values_says_so_and_has_no_scale() -> None:
    query = FakeQuery()
    loop = Loop(FakeGateway(query), Settings(), Clock())
    query.run(LEVEL, 2)
    loop.step()
    html = page(loop.status())
    assert html.count("nothing to show") == 1  # no state was moved
    moved = html[html.index("<h3>State moved</h3>") :]
    assert "0 B" not in moved
    assert ">batch</text>" in moved


def test_every_axis_says_what_it_measures_and_both_backgrounds_have_colours() -> None:
    html = page(drifting(30))
    assert html.count(">batch</text>") == 6
    for unit in ("partition", "imbalance", "milliseconds", "% of the rows", "entries", "bytes"):
        assert f'rotate(-90)" text-anchor="middle">{unit}</text>' in html, unit
    light, dark = html.split("@media (prefers-color-scheme: dark)")[:2]
    names = set(re.findall(r"var\((--\w+)", html))
    assert names
    assert names - {f"--{kind}{i}" for kind in "ch" for i in range(11)} <= set(re.findall(r"(--\w+):", light))
    assert names <= set(re.findall(r"(--\w+):", dark))


def test_values_of_keys_are_in_the_report_and_escaped() -> None:
    query = FakeQuery(values={0: "a <i>", 4: "x" * 64})
    loop = Loop(FakeGateway(query), Settings(pace=Pace(patience=1, cooldown_seconds=0)), Clock())
    loop.step()
    for _ in range(3):
        query.run(SKEWED)
        loop.step()
    html = page(loop.status())
    assert '"a <i>" (hash 0)' in check_html(html)
    assert "<i>" not in html
    assert "&quot;a &lt;i&gt;&quot; (hash 0)</span>" in html  # in the legend of the curves


def test_a_long_name_and_five_thousand_batches_of_three_hundred_partitions_are_drawn() -> None:
    [query] = drifting(60, partitions=300).queries
    batches = tuple(replace(query.batches[i % 60], batch=i) for i in range(5000))
    swap = SwapRecord(0, 0, tuple(range(20)), 900, "gain", 900, 600.0, 1.2, 0.05, 30, 10**9, 80)
    swaps = tuple(replace(swap, batch=i, epoch=i) for i in range(1, 5000, 25))
    html = page(Status("", (replace(query, name="<script>" + "n" * 500, batches=batches, swaps=swaps),)))
    check_html(html)
    assert 'opacity="0.35"' in html
    assert len(html) < 3_000_000


def test_a_query_whose_partitions_changed_in_number_is_drawn() -> None:
    batches = tuple(BatchRecord(i, 0, 10, 5, np.ones(2 + i), 0) for i in range(4))
    check_html(page(Status("", (QueryRecord("q", "", True, 0, 0, "", batches),))))


def test_a_query_without_batches_and_a_loop_without_queries_are_told() -> None:
    nothing = QueryRecord("q", "", False, 0, 0, "the query has ended", errors={"OSError: <x>": 4})
    text = check_html(page(Status("over", (nothing,))))
    assert "No batch with a routed exchange has been seen." in text
    assert "error, 4 times: OSError: <x>" in text
    assert "No streaming query has been seen." in check_html(page(Status("over")))


def test_swaps_older_than_the_batches_remembered_do_not_break_the_plots() -> None:
    [query] = drifting(60).queries
    later = replace(query, batches=query.batches[-5:])
    html = page(Status("", (later,)))
    check_html(html)
    assert len(query.swaps) > 1
    assert f"<title>{query.swaps[0]}</title>" not in html


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"the report cannot be written to .*nowhere.*Give a file"):
        write(tmp_path / "nowhere" / "report.html", Status(""))


def test_several_queries_have_a_line_each_above_their_plots() -> None:
    [query] = drifting(30).queries
    other = replace(query, query_id="query-2", name="visits", running=False, why="the query has ended")
    html = page(Status("", (query, other)))
    text = check_html(html)
    assert "<h2>All queries</h2>" in html
    assert html.index("All queries") < html.index("<h2>Query ")
    assert "visits" in text
    assert "<h2>All queries</h2>" not in page(Status("", (query,)))


def test_the_axis_shows_the_wall_clock_and_the_slots_where_they_are_known() -> None:
    [query] = drifting(30).queries
    batches = tuple(replace(b, at=1_700_000_000.0 + b.batch, slots=8) for b in query.batches)
    html = page(Status("", (replace(query, batches=batches),)))
    check_html(html)
    assert re.search(r">\d\d:\d\d:\d\d</text>", html)
    assert "<h3>Slots</h3>" in html
    assert "<h3>Slots</h3>" not in page(Status("", (query,)))


def test_hot_keys_are_stacked_up_to_their_sum() -> None:
    html = page(drifting(10))
    hot = html[html.index("<h3>Hottest keys</h3>") : html.index("<h3>Table size</h3>")]
    assert hot.count("<path d=") > 8  # a piece per key, and the grid
    assert "%" in hot


def test_level_keys_are_explained() -> None:
    query = FakeQuery()
    loop = Loop(FakeGateway(query), Settings(), Clock())
    query.run(dict.fromkeys(range(1000), 1), 2)
    loop.step()
    words = "an aggregate such as count() adds up the rows of each key in its map task first"
    assert words in str(loop.status())
    assert words in check_html(page(loop.status()))
    assert words not in str(drifting(10))
