from __future__ import annotations

import re

from fake_gateway import LEVEL, SKEWED, Clock, FakeGateway, FakeQuery
from markup import check_html
from records import drifting
from skewless.control.loop import Loop
from skewless.control.pace import Pace
from skewless.control.settings import Settings
from skewless.errors import CheckpointError
from skewless.report.status import Status


def levelled(values: dict[int, str] | None = None) -> tuple[Loop, FakeGateway, FakeQuery]:
    query = FakeQuery(values=values or {})
    gateway = FakeGateway(query)
    loop = Loop(gateway, Settings(pace=Pace(patience=1, cooldown_seconds=0)), Clock())
    loop.step()
    for _ in range(4):
        query.run(SKEWED)
        loop.step()
    return loop, gateway, query


def test_the_text_says_what_a_user_asks() -> None:
    text = str(levelled()[0].status())
    for words in (
        "the loop is running (policy mixed, max_imbalance 0.08, max_entries 3000, splits off)",
        "query clicks (query-1)",
        "running, batch 3 took 500 ms for 100 rows",
        "epoch 1, 2 entries for 2 partitions",
        "0.000 now",
        "last swap: 1.000 before, 0.000 predicted, 0.000 realised",
        "hash 0: 40.0% of the rows (up to 1.0% off)",
        "1 remembered, 2.0 kB of state moved",
        "batch 1 went to epoch 1: 2 keys moved (hashes ",
        "6 state rows, 2.0 kB, export 120 ms, batch 600 ms (100 ms longer); "
        "imbalance 1.000 before, 0.000 predicted, 0.000 realised; batches take 0.50 of what they would under "
        "the table before; the clock is 0% off",
        "slots not known; predicted batch times are 0% off in the median",
        "level: imbalance 0.000 is within 0.080",
    ):
        assert words in text, words
    assert "error" not in text


def test_only_the_five_hottest_keys_and_the_last_five_swaps_are_told() -> None:
    text = str(drifting(200))
    assert text.count(" of the rows (up to") == 5
    assert text.count(" went to epoch ") == 5


def test_values_of_keys_stand_beside_their_hashes_where_they_are_known() -> None:
    text = str(levelled({0: "alice <x>", 4: "NULL"})[0].status())
    assert '"alice <x>" (hash 0): 40.0% of the rows' in text
    assert "hash 2: 40.0% of the rows" in text
    assert re.search(r'2 keys moved \((hash 2|"alice <x>" \(hash 0\)), "NULL" \(hash 4\)|hash 6\)', text), (
        text
    )
    html = levelled({0: "alice <x>"})[0].status()._repr_html_()
    assert "alice &lt;x&gt;" in html
    assert "<x>" not in html


def test_errors_are_told_with_their_counts() -> None:
    loop, gateway, query = levelled()
    gateway.fail["observed"] = CheckpointError("<gone>")
    query.run(SKEWED)
    loop.step()
    assert "1 time: CheckpointError: <gone>" in str(loop.status())
    assert "1 time: CheckpointError: &lt;gone&gt;" in loop.status()._repr_html_()


def test_a_status_without_queries_says_so() -> None:
    status = Status("no loop", errors={"OSError: x": 2})
    assert str(status) == "no loop\n  error, 2 times: OSError: x\nno streaming query has been seen"
    check_html(status._repr_html_())


def test_a_query_without_batches_has_a_status() -> None:
    query = FakeQuery()
    loop = Loop(FakeGateway(query), Settings())
    loop.step()
    assert "running, no batch seen" in str(loop.status())
    assert "no batch with a routed exchange yet" in str(loop.status())
    query.run({})
    loop.step()
    assert "batch 0 took 0 ms for 0 rows" in str(loop.status())
    check_html(loop.status()._repr_html_())


def test_a_status_does_not_change_after_it_was_handed_out() -> None:
    loop, _, query = levelled()
    status = loop.status()
    before = str(status)
    for _ in range(5):
        query.run(LEVEL)
        loop.step()
    assert str(status) == before
    assert str(loop.status()) != before


def test_the_html_is_whole_and_escapes_names() -> None:
    html = drifting()._repr_html_()
    check_html(html)
    assert "clicks &lt;b&gt; (query-1)" in html


def test_a_notebook_shows_the_plots() -> None:
    html = drifting(10)._repr_html_()
    assert html.count("<svg") == 6
    assert "body {" not in html  # a style of its own, and no one else's


def test_a_status_tells_one_imbalance() -> None:
    loop, _, query = levelled()
    query.run({0: 43, 2: 40, 4: 10, 6: 10})  # the batches before it weigh too
    loop.step()
    [record] = loop.status().queries
    assert record.imbalance != record.batches[-1].imbalance
    text = str(loop.status())
    assert f"imbalance  {record.imbalance:.3f} now" in text
    assert f"imbalance {record.imbalance:.3f}" in record.why
