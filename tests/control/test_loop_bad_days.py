"""Bad input and bad days, seen from the loop: nothing is published for nothing, the reason is told, the query
runs on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fake_gateway import LEVEL, SKEWED, FakeQuery
from loop_scene import EAGER, Scene
from skewless.control.observed import ObservedBatch
from skewless.control.settings import Settings
from skewless.errors import CheckpointError, PolicyError, QueryError, SettingError
from skewless.model.plan import Moves, Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.report.records import KEPT_BATCHES


def test_a_stream_that_starts_without_rows_is_levelled_once_there_are_some() -> None:
    scene = Scene()
    record = scene.see({}, 20)
    assert scene.gateway.calls == 0
    assert record.why.startswith("idle")
    scene.see(SKEWED, 3)
    assert scene.gateway.calls == 1


def test_one_key_alone_stays_where_it_is_and_is_named() -> None:
    scene = Scene()
    record = scene.see({4: 100}, 20)
    assert scene.gateway.calls == 0
    assert "split: key hash 4 carries 2.00 times the mean; only a split can level it" in record.why
    assert not record.errors


def test_one_partition_leaves_nothing_to_do() -> None:
    scene = Scene(FakeQuery(partitions=1))
    record = scene.see(SKEWED, 20)
    assert scene.gateway.calls == 0
    assert record.why.startswith("level: imbalance 0.000")
    assert not record.errors


def test_equal_keys_are_halved_once_and_then_left_alone() -> None:
    scene = Scene()
    equal = dict.fromkeys(range(0, 40, 2), 5)  # all at home in partition 0
    record = scene.see(equal, 20)
    assert scene.gateway.calls == 1
    assert len(scene.query.pins[0][1]) == 10
    assert record.why.startswith(
        ("level: imbalance 0.000", "standing down: level, and every one of 10 entries is needed")
    )


def test_a_key_heavier_than_a_fair_share_gets_a_partition_to_itself_and_does_not_wander() -> None:
    scene = Scene()
    giant = {0: 90, 2: 20, 4: 20, 1: 10}
    record = scene.see(giant, 30)
    assert scene.gateway.calls == 1
    assert set(scene.query.pins[0][1].move_hashes.tolist()) == {2, 4}
    assert "split: key hash 0 carries 1.29 times the mean; only a split can level it" in record.why


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (lambda hashes, rows: rows * np.nan, "SettingError: the cost function returned nan for key hash 0"),
        (
            lambda hashes, rows: np.full(len(rows), -1),
            "SettingError: the cost function returned -1.0 for key hash 0",
        ),
        (lambda hashes, rows: rows[:1], "SettingError: the cost function returned shape (1,) for 4 keys"),
        (lambda hashes, rows: rows / "a", "SettingError: the cost function failed: "),
    ],
)
def test_a_cost_function_gone_wrong_changes_nothing_until_it_is_right_again(
    cost: Callable[..., Any], words: str
) -> None:
    broken = [True]
    scene = Scene(
        settings=replace(EAGER, cost=lambda hashes, rows: cost(hashes, rows) if broken[0] else rows)
    )
    record = scene.see(SKEWED, 5)
    assert scene.gateway.calls == 0
    [(told, times)] = record.errors.items()
    assert told.startswith(words)
    assert times == 5
    assert record.why.startswith("error: SettingError: the cost function")
    broken[0] = False
    scene.see(SKEWED)
    assert scene.gateway.calls == 1


def test_trouble_with_one_query_leaves_the_other_alone() -> None:
    one, other = FakeQuery(), FakeQuery("query-2", "run-2")
    scene = Scene(one, other)
    good = scene.gateway.observed

    def observed(query_id: str, after: int) -> list[ObservedBatch]:
        if query_id == "query-1":
            raise ConnectionError("lost")
        return good(query_id, after)

    scene.gateway.observed = observed  # type: ignore[method-assign]
    for _ in range(3):
        other.run(SKEWED)
        scene.loop.step()
    assert scene.record(0).errors == {"ConnectionError: lost": 1}  # then it backs off
    assert scene.record(1).epoch == 1


def _raises(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    raise ZeroDivisionError("a bug")


def _exits(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    raise SystemExit(3)


def _another_n(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    return Plan(
        Table(3, {0: 1}, epoch=table.epoch + 1),
        Moves.of([0], [0], [1], [1.0]),
        1.0,
        0.0,
        seconds=0.0,
        met=True,
    )


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (_raises, "ZeroDivisionError: a bug"),
        (_exits, "SystemExit: 3"),
        (_another_n, "PolicyError: the plan's table has 3 partitions, the query 2. Keep the number."),
        (
            lambda snapshot, table, limits: None,
            "PolicyError: the policy returned NoneType. A policy returns a Plan.",
        ),
    ],
)
def test_a_policy_that_misbehaves_changes_nothing_and_is_shown(
    policy: Callable[..., Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(settings=replace(EAGER, policy=policy))
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            scene.clock.now += 100
            record = scene.see(SKEWED)
    assert list(record.errors) == [words]
    assert record.errors[words] == 10
    assert scene.gateway.calls == 0
    assert len(caplog.records) == 1


def test_a_query_that_cannot_take_a_table_is_left_alone_for_good(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    refusal = QueryError(
        "query 7 cannot take a table: its aggregate keeps state by key, and the provider is not ours."
    )
    scene.gateway.fail["publish"] = refusal
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            scene.clock.now += 1000
            record = scene.see(SKEWED)
    assert scene.gateway.calls == 1
    assert record.why == f"left alone: {refusal}"
    assert record.errors == {f"PolicyError: the swap to epoch 1 failed: QueryError: {refusal}": 1}
    assert len(caplog.records) == 1
    assert len(record.batches) == 20


def test_a_publish_that_fails_is_tried_again_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.gateway.fail["publish"] = CheckpointError("the disk is full")
    with caplog.at_level(logging.WARNING):
        record = scene.see(SKEWED, 600)  # a second each
    assert 5 + 480 / 60 <= scene.gateway.calls <= 6 + 600 / 60
    assert len(caplog.records) == 1
    assert record.why.startswith(("backing off", "error: CheckpointError: the disk is full"))
    del scene.gateway.fail["publish"]
    assert scene.see(SKEWED, 70).epoch == 1


def test_a_thousand_batches_without_data_change_nothing() -> None:
    scene = Scene()
    scene.see(SKEWED, 3)
    record = scene.see({}, 1000)
    assert scene.gateway.calls == 1
    assert record.why == "idle: batch 1002 had no rows"
    assert len(record.batches) == KEPT_BATCHES
    assert record.last_batch is None
    assert "no batch since" in str(scene.loop.status())


def test_a_cost_function_of_nan_keeps_the_table_and_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(settings=replace(EAGER, cost=lambda hashes, rows: rows * np.nan))
    with caplog.at_level(logging.WARNING):
        record = scene.see(SKEWED, 5)
    assert scene.gateway.calls == 0
    [(words, times)] = record.errors.items()
    assert words.startswith("SettingError: the cost function returned nan for key hash 0")
    assert times == 5
    assert len(caplog.records) == 1
    assert record.why.startswith("error: SettingError: the cost function")


def test_a_swap_whose_batch_ran_under_the_old_table_has_failed() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.query.pins.clear()
    record = scene.see(SKEWED)
    assert [words for words in record.errors if words.endswith("batch 1 still ran under epoch 0")]
    assert record.epoch == 0


def test_the_end_of_the_session_ends_the_loop_quietly(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.see(LEVEL)
    scene.gateway.is_alive = False
    with caplog.at_level(logging.WARNING):
        assert not scene.loop.step()
        assert not scene.loop.step()
    status = scene.loop.status()
    assert status.loop.startswith("the loop is over: the session has stopped")
    assert (status.queries[0].running, status.queries[0].why) == (False, "the session has stopped")
    assert not caplog.records


@pytest.mark.parametrize("call", ["active", "observed"])
def test_a_session_that_ends_inside_a_call_ends_the_loop_quietly(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.see(LEVEL)
    answers = iter([True, False, False, False])
    scene.gateway.alive = lambda: next(answers)  # type: ignore[method-assign]
    scene.gateway.fail[call] = ConnectionError("the JVM is gone")
    with caplog.at_level(logging.WARNING):
        assert not scene.loop.step()
    assert not caplog.records


def test_a_gateway_that_fails_is_asked_again_later_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.gateway.fail["active"] = ConnectionError("busy")
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            assert scene.loop.step()
            scene.clock.now += 1
    assert scene.loop.status().errors == {"ConnectionError: busy": 3}  # at 0, 2 and 6 seconds
    assert len(caplog.records) == 1
    scene.gateway.fail.clear()
    scene.clock.now += 60
    assert scene.see(LEVEL).why.startswith("level")


def test_a_table_that_cannot_be_read_stays_the_trouble_of_its_query() -> None:
    scene = Scene()
    scene.gateway.fail["latest"] = CheckpointError("tables/3 is damaged")
    scene.see(SKEWED)
    assert scene.record().errors == {"CheckpointError: tables/3 is damaged": 1}
    assert scene.gateway.calls == 0
    scene.gateway.fail.clear()
    scene.clock.now += 60
    scene.see(SKEWED, 2)
    assert scene.record().epoch == 1


def test_swap_details_that_cannot_be_had_do_not_hold_up_a_swap() -> None:
    scene = Scene()
    scene.gateway.fail["swaps"] = ConnectionError("busy")
    record = scene.see(SKEWED, 3)
    assert record.epoch == 1
    assert record.swaps[0].export_ms is None
    assert record.errors == {"ConnectionError: busy": 1}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"window": 0}, "window is 0"),
        ({"window": 1.5}, r"window is 1\.5"),
        ({"decay": 0}, "decay is 0"),
        ({"decay": 1.1}, r"decay is 1\.1"),
        ({"decay": "half"}, "decay is 'half'"),
        ({"poll_seconds": 0}, "poll_seconds is 0"),
        ({"poll_seconds": float("nan")}, "poll_seconds is nan"),
        ({"plan_wait_ms": -1}, "plan_wait_ms is -1"),
        ({"plan_wait_ms": 2.5}, r"plan_wait_ms is 2\.5"),
        ({"look_ahead": 1}, "look_ahead is 1"),
        ({"cost": 3}, "cost is 3"),
        ({"pace": 3}, "pace is 3"),
        ({"policy": 3}, "policy is 3"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_name(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Settings(**bad)


def test_an_unknown_policy_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(PolicyError, match=r"there is no policy 'magic'\. Choose one of: .*mixed"):
        Settings("magic")
