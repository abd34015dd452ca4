from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import skewless
from fake_gateway import SKEWED, FakeGateway, FakeQuery
from skewless.control.loop import Loop
from skewless.control.settings import Settings
from skewless.errors import (
    CheckpointError,
    NotYetError,
    PolicyError,
    QueryError,
    SessionError,
    SettingError,
    TableError,
)
from skewless.spark import balancer as module
from skewless.spark.balancer import Balancer, balance

SPARK: Any = object()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGateway]:
    fake = FakeGateway(FakeQuery())
    monkeypatch.setattr(module, "Gateway", lambda spark: fake)
    yield fake
    for _, loop in module._started:
        loop.stop()


def wait_for(condition: Any) -> None:
    import time

    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("nothing happened within ten seconds")


def test_by_default_a_loop_levels_what_runs(gateway: FakeGateway, tmp_path: Path) -> None:
    [query] = gateway.queries
    with balance(SPARK, pace=skewless.Pace(patience=1), poll_seconds=0.001) as balancer:
        wait_for(lambda: balancer.status().queries)
        query.run(SKEWED)
        wait_for(lambda: gateway.published)
        query.run(SKEWED)
        wait_for(lambda: balancer.status().queries[0].swaps)
        assert "epoch 1, 2 entries" in str(balancer.status())
        assert balancer.report(tmp_path / "report.html").read_text(encoding="utf-8").count("<svg") == 6
    assert "the loop is over: stopped" in str(balancer.status())
    balancer.stop()


def test_a_loop_with_a_forecast_tells_how_it_does(gateway: FakeGateway) -> None:
    [query] = gateway.queries
    with balance(SPARK, forecast="ewma", poll_seconds=0.001) as balancer:
        query.run(SKEWED, 3)
        wait_for(lambda: balancer.status().queries and balancer.status().queries[0].batches)
    assert "ewma: 0.0% of the rows foreseen at the wrong key" in str(balancer.status())


def test_by_hand_nothing_runs(gateway: FakeGateway) -> None:
    [query] = gateway.queries
    balancer = balance(SPARK, policy=None)
    assert str(balancer.status()).startswith("no loop: tables are published by hand")
    swap = balancer.publish(query, skewless.Table(2, {0: 1}))  # type: ignore[arg-type]
    assert swap == skewless.Swap(epoch=1, batch=0)
    assert balancer.table(query) == skewless.Table(2, {0: 1}, epoch=1)  # type: ignore[arg-type]
    with pytest.raises(TableError, match=r"publish takes a skewless\.Table, not a dict"):
        balancer.publish(query, {0: 1})  # type: ignore[arg-type]
    balancer.stop()


def test_a_session_has_one_loop_at_a_time(gateway: FakeGateway) -> None:
    first = balance(SPARK)
    with pytest.raises(SettingError, match=r"balanced already.*Call stop\(\) of the first balancer"):
        balance(SPARK)
    balance(SPARK, policy=None)
    first.stop()
    balance(SPARK).stop()


def test_a_loop_whose_session_is_gone_makes_room(gateway: FakeGateway) -> None:
    first = balance(SPARK, poll_seconds=0.001)
    gateway.is_alive = False
    wait_for(lambda: "the session has stopped" in str(first.status()))
    wait_for(lambda: not module._started[0][1].running)
    gateway.is_alive = True
    balance(SPARK).stop()


def test_other_sessions_have_loops_of_their_own(gateway: FakeGateway) -> None:
    gateway.same_session = lambda other: False  # type: ignore[method-assign]
    first, second = balance(SPARK), balance(SPARK)
    first.stop()
    second.stop()


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ({"policy": "magic"}, PolicyError, "no policy 'magic'"),
        ({"max_imbalance": -1}, SettingError, "max_imbalance is -1"),
        ({"max_entries": 1.5}, SettingError, r"max_entries is 1\.5"),
        ({"window": 0}, SettingError, "window is 0"),
        ({"max_imbalance": "0.1"}, SettingError, r"max_imbalance is '0\.1'\. Give a number, without quotes"),
        ({"max_entries": "100"}, SettingError, "max_entries is '100'"),
        ({"max_entries": float("inf")}, SettingError, "max_entries is inf"),
        ({"poll_seconds": "1"}, SettingError, "poll_seconds is '1'"),
        ({"plan_wait_ms": None}, SettingError, "plan_wait_ms is None"),
        ({"decay": True}, SettingError, "decay is True"),
        ({"forecast": "magic"}, SettingError, "there is no forecast 'magic'"),
        ({"forecast": "ewma", "forecast_folder": 7}, SettingError, "forecast_folder is 7"),
    ],
)
def test_a_bad_setting_is_told_to_the_caller_and_starts_nothing(
    gateway: FakeGateway, bad: dict[str, Any], error: type[Exception], words: str
) -> None:
    running = len(module._started)
    with pytest.raises(error, match=words):
        balance(SPARK, **bad)
    assert len(module._started) == running


@pytest.mark.parametrize(
    ("no_session", "words"),
    [
        (None, r"there is no Spark session.*Start one"),
        (SparkSession.Builder(), r"builder.*getOrCreate\(\)"),
        (SparkSession, "not a Spark session"),
        ("local[2]", "'local.2.', not a Spark session"),
    ],
)
@pytest.mark.parametrize("policy", ["mixed", None])
def test_what_is_no_session_is_refused_by_name(no_session: Any, words: str, policy: str | None) -> None:
    with pytest.raises(SessionError, match=words) as told:
        balance(no_session, policy)
    assert "Connect" not in str(told.value)


def test_a_balancer_says_what_it_does(gateway: FakeGateway) -> None:
    by_hand = balance(SPARK, policy=None)
    words = "no loop: tables are published by hand (policy=None), 1 query seen"
    assert repr(by_hand) == f"<skewless.Balancer: {words}>"
    balancer = balance(SPARK, poll_seconds=0.001)
    wait_for(lambda: balancer.status().queries)
    assert repr(balancer).startswith("<skewless.Balancer: the loop is running (policy mixed, ")
    assert repr(balancer).endswith(", 1 query seen>")
    balancer.stop()
    assert "the loop is over: stopped" in repr(balancer)


def test_after_stop_another_loop_levels_the_same_query(gateway: FakeGateway) -> None:
    [query] = gateway.queries
    balance(SPARK).stop()
    with balance(SPARK, pace=skewless.Pace(patience=1), poll_seconds=0.001) as second:
        wait_for(lambda: second.status().queries)
        query.run(SKEWED)
        wait_for(lambda: gateway.published)


@pytest.mark.parametrize("query", [None, "clicks", 7])
def test_what_is_no_query_is_refused(gateway: FakeGateway, query: Any) -> None:
    balancer = balance(SPARK, policy=None)
    calls: list[Any] = [lambda: balancer.publish(query, skewless.Table(2)), lambda: balancer.table(query)]
    calls += [lambda: balancer.place(query, {0: "1"}), lambda: balancer.placed(query)]
    for call in calls + ([lambda: balancer.loads(query)] if query is not None else []):
        with pytest.raises(QueryError, match=f"not {query!r}"):
            call()


@pytest.mark.parametrize(
    "wishes", [[1], {0: 1}, {"0": "1"}, {True: "1"}, {-1: "1"}, {0.5: "1"}, {1 << 31: "1"}]
)
def test_wishes_that_name_no_partition_and_executor_are_refused(gateway: FakeGateway, wishes: Any) -> None:
    [query] = gateway.queries
    with pytest.raises(SettingError, match="Give a"):
        balance(SPARK, policy=None).place(query, wishes)  # type: ignore[arg-type]


class JavaClass:
    def __init__(self, *names: str) -> None:
        self.names = names

    def getName(self) -> str:  # noqa: N802
        return self.names[0]

    def getSimpleName(self) -> str:  # noqa: N802
        return self.names[0].split(".")[-1]

    def getSuperclass(self) -> JavaClass | None:  # noqa: N802
        return JavaClass(*self.names[1:]) if len(self.names) > 1 else None


class JavaError(Exception):
    """As Py4J raises it: with a Java exception inside, whose cause tells what went wrong."""

    def __init__(self, *names: str) -> None:
        cause = SimpleNamespace(
            getClass=lambda: JavaClass(*names), getMessage=lambda: "Mkdirs failed", getCause=lambda: None
        )
        self.java_exception = SimpleNamespace(
            getClass=lambda: JavaClass("java.lang.RuntimeException", "java.lang.Object"),
            getMessage=lambda: "wrapped",
            getCause=lambda: cause,
        )


@pytest.mark.parametrize(
    ("names", "expected", "words"),
    [
        (
            ("org.example.AccessControlException", "java.io.IOException"),
            CheckpointError,
            r"query clicks: AccessControlException: Mkdirs failed\. Give",
        ),
        (("java.lang.IllegalStateException",), JavaError, None),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_told_as_such(
    gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    expected: type[Exception],
    words: str | None,
) -> None:
    def publish(query: object, table: bytes) -> tuple[int, int]:
        raise JavaError(*names)

    monkeypatch.setattr(gateway, "publish", publish)
    [query] = gateway.queries
    with pytest.raises(expected, match=words):
        balance(SPARK, policy=None).publish(query, skewless.Table(2))  # type: ignore[arg-type]


def test_importing_skewless_stays_light() -> None:
    code = (
        "import sys, skewless, skewless.policies, skewless.control.loop, skewless.report.page; "
        "skewless.Pace, skewless.Status;"
        "sys.exit(any(name.split('.')[0] in ('pyspark', 'py4j', 'matplotlib', 'numba', 'jax') for "
        "name in sys.modules))"
    )
    path = ":".join(entry for entry in sys.path if entry)
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=False).returncode == 0


def test_the_plain_data_types_are_at_hand() -> None:
    assert skewless.policies.names()
    assert skewless.Snapshot.of(skewless.Table(2), [0], [1.0]).imbalance == 1.0
    assert {"Pace", "Plan", "Snapshot", "Status", "policies"} <= set(skewless.__all__)


def released(newest: list[int], in_log: int = -1) -> Balancer:
    """A balancer over a query whose keys go home in batch 7; `newest` are the answers of the commit news."""
    gateway: Any = SimpleNamespace(
        release=lambda query: 7,
        newest=lambda query_id: newest.pop(0) if len(newest) > 1 else newest[0],
        newest_in_log=lambda query: in_log,
    )
    return Balancer(gateway, Loop(gateway, Settings(policy=None)))


@pytest.mark.parametrize(("active", "newest", "in_log"), [(True, [5, 6, 7], -1), (False, [6], 7)])
def test_release_returns_when_the_batch_that_takes_the_keys_home_is_committed(
    active: bool, newest: list[int], in_log: int
) -> None:
    query: Any = SimpleNamespace(id="q", runId="r", name="clicks", isActive=active)
    found = released(newest, in_log).release(query, timeout_seconds=60)
    assert (found.batch, found.plain_from) == (7, 8)


def test_release_says_what_to_do_when_that_batch_does_not_come() -> None:
    query: Any = SimpleNamespace(id="q", runId="r", name="clicks", isActive=True)
    with pytest.raises(NotYetError, match="call release again"):
        released([6]).release(query, timeout_seconds=0)
    query.isActive = False
    with pytest.raises(QueryError, match="start it again, and release it again"):
        released([6], in_log=6).release(query)
    with pytest.raises(SettingError, match="timeout_seconds"):
        released([6]).release(query, timeout_seconds=float("nan"))


def test_swaps_published_by_hand_are_in_status_and_report(gateway: FakeGateway, tmp_path: Path) -> None:
    [query] = gateway.queries
    balancer = balance(SPARK, policy=None)
    query.run(SKEWED)
    balancer.publish(query, skewless.Table(2, {0: 1}))  # type: ignore[arg-type]
    query.run(SKEWED)
    balancer.publish(query, skewless.Table(2, {0: 1, 2: 1}))  # type: ignore[arg-type]
    query.run(SKEWED, 2)
    text = str(balancer.status())
    assert "batch 1 went to epoch 1: 1 key moved (hashes 0)" in text
    assert "batch 2 went to epoch 2: 1 key moved (hashes 2)" in text
    assert "by hand: tables are published with balancer.publish" in text
    assert not gateway.watched
    assert len(gateway.published) == 2  # by hand, both of them
    html = balancer.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "published by hand" in html
    assert html.count("<svg") == 6


def test_two_tables_published_between_two_looks_are_both_told(gateway: FakeGateway) -> None:
    [query] = gateway.queries
    balancer = balance(SPARK, policy=None)
    query.run(SKEWED)
    balancer.status()
    query.publish(skewless.Table(2, {0: 1}))  # in another process, say
    query.run(SKEWED)
    query.publish(skewless.Table(2, {0: 1, 2: 1}))
    query.run(SKEWED)
    assert [swap.epoch for swap in balancer.status().queries[0].swaps] == [1, 2]


def test_a_dry_run_says_what_would_be_done_and_publishes_nothing(gateway: FakeGateway) -> None:
    [query] = gateway.queries
    balancer = balance(SPARK, policy=None)
    query.run(SKEWED, 3)
    told = balancer.dry_run(query)  # type: ignore[arg-type]
    assert str(told).splitlines()[0] == (
        "query clicks, by batches 0 to 2: the loop would swap tables; nothing is published"
    )
    assert "imbalance: 1.000 now, 0.000 predicted" in str(told)
    assert told.decision.plan is not None
    assert not gateway.published
    balancer.publish(query, told.decision.plan.table)  # type: ignore[arg-type]
    query.run(SKEWED)
    assert "level: imbalance 0.000" in str(balancer.dry_run(query))  # type: ignore[arg-type]
    query.obstacle = "its state lies in one partition."
    words = "but the query cannot be balanced: its state lies in one partition."
    assert words in str(balancer.dry_run(query))  # type: ignore[arg-type]


def test_a_dry_run_counts_keys_where_nobody_does_and_stops_counting(gateway: FakeGateway) -> None:
    [query] = gateway.queries
    balancer = balance(SPARK, policy=None)
    with pytest.raises(NotYetError, match=r"no batch with counted keys within 0\.01 s\. Ask again"):
        balancer.dry_run(query, seconds=0.01)  # type: ignore[arg-type]
    assert gateway.watched
    assert gateway.unwatched == [query.id]


def test_only_chosen_queries_are_balanced(gateway: FakeGateway) -> None:
    one, other = gateway.queries[0], FakeQuery("query-2", "run-2", name="visits")
    gateway.queries.append(other)
    with balance(SPARK, pace=skewless.Pace(patience=1), poll_seconds=0.001) as balancer:
        balancer.balance_only("visits")
        wait_for(lambda: len(balancer.status().queries) == 2)
        for _ in range(3):
            one.run(SKEWED)
            other.run(SKEWED)
        wait_for(lambda: gateway.published)
        wait_for(lambda: "excluded" in balancer.status().queries[0].why)
        balancer.exclude(other)  # type: ignore[arg-type]
        other.run(SKEWED)
        wait_for(lambda: "excluded" in balancer.status().queries[1].why)
    assert {query_id for query_id, _ in gateway.published} == {"query-2"}
    with pytest.raises(QueryError, match="a streaming query or its name is needed, not 7"):
        balancer.exclude(7)  # type: ignore[arg-type]
