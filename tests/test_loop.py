from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fake_gateway import LEVEL, SKEWED, Clock, FakeGateway, FakeQuery
from skewless.controller import Pace
from skewless.errors import CheckpointError, PolicyError, QueryError, SettingError
from skewless.loop import Loop
from skewless.observe import ObservedBatch
from skewless.plan import Moves, Plan
from skewless.policies import Limits
from skewless.policies.mixed import mixed
from skewless.record import KEPT_BATCHES, KEPT_VALUES, QueryRecord
from skewless.snapshot import Snapshot
from skewless.swap_cost import SwapCost
from skewless.table import Table
from skewless.watch import Settings

EAGER = Settings(pace=Pace(patience=1, cooldown_seconds=0))


class Scene:
    """A loop over fake queries, stepped by hand: a batch, then a look."""

    def __init__(self, *queries: FakeQuery, settings: Settings = EAGER) -> None:
        self.query = queries[0] if queries else FakeQuery()
        self.gateway = FakeGateway(*(queries or (self.query,)))
        self.clock = Clock()
        self.loop = Loop(self.gateway, settings, self.clock)
        assert self.loop.step()

    def see(self, rows: dict[int, int], times: int = 1) -> QueryRecord:
        for _ in range(times):
            self.query.run(rows)
            self.clock.now += 1
            assert self.loop.step()
        return self.record()

    def record(self, at: int = 0) -> QueryRecord:
        return self.loop.status().queries[at]

    @property
    def epochs(self) -> list[int]:
        return [batch.epoch for batch in self.record().batches]


def test_level_input_never_publishes() -> None:
    scene = Scene()
    record = scene.see(LEVEL, 50)
    assert scene.gateway.calls == 0
    assert record.why.startswith("level: imbalance 0.000")
    assert len(record.batches) == 50


def test_skewed_input_is_swapped_once_and_stays_level() -> None:
    scene = Scene()
    assert scene.see(SKEWED).why.startswith("swapping to epoch 1 with batch 1; gain:")
    record = scene.see(SKEWED, 8)
    assert len(scene.gateway.published) == 1
    assert scene.epochs == [0] + [1] * 8
    assert (record.epoch, record.entries, record.why) == (1, 2, "level: imbalance 0.000 is within 0.080")
    [swap] = record.swaps
    assert (swap.batch, swap.moved, swap.before, swap.predicted, record.realised(swap)) == (1, 2, 1.0, 0.0, 0.0)
    assert (swap.state_rows, swap.bytes_moved, swap.export_ms) == (6, 2000, 120)
    assert (swap.usual_ms, swap.batch_ms, swap.pause_ms) == (1000, 1100, 100)
    assert record.gain(swap) == 2.0
    assert record.errors == {}


def test_patience_and_cool_down_are_kept() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=3, cooldown_seconds=1000)))
    scene.see(SKEWED, 2)
    assert scene.gateway.calls == 0
    scene.see(SKEWED, 2)
    assert scene.gateway.calls == 1
    drifted = {1: 40, 3: 40, 5: 10, 7: 10}
    assert scene.see(drifted, 20).why.startswith("resting")
    assert scene.gateway.calls == 1


def test_a_swap_in_flight_blocks_another() -> None:
    scene = Scene(FakeQuery(planned_ahead=4))
    scene.see(SKEWED)
    assert scene.see(SKEWED, 4).why == "unfinished: the swap to epoch 1 is under way"
    assert scene.gateway.calls == 1
    scene.see(SKEWED, 3)
    assert scene.epochs == [0] * 5 + [1] * 3
    assert scene.record().swaps[0].batch == 5


def test_of_a_swaps_own_batch_the_rows_count_but_not_the_times() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.query.run(SKEWED)
    migrating = scene.query.committed.pop()
    scene.query.committed.append(replace(migrating, run_ms=migrating.run_ms * [1, 9]))
    assert scene.loop.step()
    assert scene.record().why.startswith("level: imbalance 0.000")
    scene.see(SKEWED, 3)
    assert scene.gateway.calls == 1
    turned = {2: 100, 0: 20}
    scene.see(turned)
    assert scene.gateway.calls == 2
    scene.see({4: 500, 6: 500})  # the batch of the second swap
    assert scene.gateway.calls == 3


def test_a_query_without_state_is_charged_what_its_batch_took_longer() -> None:
    scene = Scene(FakeQuery(keeps_state=False))
    record = scene.see(SKEWED, 2)
    [swap] = record.swaps
    assert (swap.state_rows, swap.bytes_moved, swap.export_ms) == (None, None, None)
    [(_, watch)] = scene.loop._watches.values()
    assert swap.pause_ms == 100
    assert watch._cost.scale == pytest.approx(_learned(seconds=0.1))


def test_a_swap_costs_what_its_export_took_or_what_its_batch_took_longer() -> None:
    scene = Scene()
    scene.see(SKEWED, 2)  # 100 ms longer, an export of 120 ms
    [(_, watch)] = scene.loop._watches.values()
    assert watch._cost.scale == pytest.approx(_learned(seconds=0.12))
    slow = Scene()
    slow.see(SKEWED)
    slow.query.run(SKEWED)
    slow.query.committed.append(replace(slow.query.committed.pop(), batch_ms=1700))
    assert slow.loop.step()
    [(_, watch)] = slow.loop._watches.values()
    assert watch._cost.scale == pytest.approx(_learned(seconds=0.7))


def _learned(seconds: float) -> float:
    """The scale after one swap of 50 rows, 100 bytes each, from one partition."""
    guess = SwapCost().seconds_per_giver + SwapCost().seconds_per_byte * 5000
    return 1 + 0.5 * (seconds / guess - 1)


def test_a_query_that_ends_with_a_swap_under_way_is_told_so() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.gateway.end(scene.query)
    assert scene.loop.step()
    record = scene.record()
    assert not record.running
    assert record.why == "the query has ended"
    assert list(record.errors) == ["PolicyError: the swap to epoch 1 failed: the query has ended before a batch ran under it"]
    assert scene.loop.step()


def test_the_last_batches_of_a_query_that_has_ended_are_still_seen() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.query.run(SKEWED)
    scene.gateway.end(scene.query)
    scene.loop.step()
    record = scene.record()
    assert scene.epochs == [0, 1]
    assert len(record.swaps) == 1
    assert record.errors == {}


def test_two_queries_are_levelled_apart() -> None:
    one, other = FakeQuery(), FakeQuery("query-2", "run-2", None, partitions=4)
    scene = Scene(one, other)
    for _ in range(5):
        one.run(SKEWED)
        other.run({0: 10, 1: 10, 2: 10, 3: 10})
        scene.loop.step()
    assert {query_id for query_id, _ in scene.gateway.published} == {"query-1"}
    other.run({0: 10, 4: 10, 8: 10, 12: 10})
    scene.loop.step()
    other.run({0: 10, 4: 10, 8: 10, 12: 10})
    scene.loop.step()
    assert [query_id for query_id, _ in scene.gateway.published] == ["query-1", "query-2"]
    assert [record.epoch for record in scene.loop.status().queries] == [1, 1]
    assert [record.title for record in scene.loop.status().queries] == ["clicks (query-1)", "query-2"]


def test_trouble_with_one_query_leaves_the_other_alone() -> None:
    one, other = FakeQuery(), FakeQuery("query-2", "run-2")
    scene = Scene(one, other)
    good = scene.gateway.observed

    def observed(query_id: str, after: int, plan_wait_ms: int) -> list[ObservedBatch]:
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
    return Plan(Table(3, {0: 1}, epoch=table.epoch + 1), Moves.of([0], [0], [1], [1.0]), 1.0, 0.0, seconds=0.0, met=True)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (_raises, "ZeroDivisionError: a bug"),
        (_exits, "SystemExit: 3"),
        (_another_n, "PolicyError: the plan's table has 3 partitions, the query 2. Keep the number."),
        (lambda snapshot, table, limits: None, "PolicyError: the policy returned NoneType. A policy returns a Plan."),
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
    refusal = QueryError("query 7 cannot take a table: its aggregate keeps state by key, and the provider is not ours.")
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


def test_a_restarted_query_may_be_published_to_again() -> None:
    scene = Scene()
    scene.gateway.fail["publish"] = QueryError("query 7 cannot take a table: it has stopped.")
    scene.see(SKEWED)
    del scene.gateway.fail["publish"]
    scene.query.runId = "run-2"
    scene.see(SKEWED, 3)
    record = scene.record()
    assert record.epoch == 1
    assert [batch.batch for batch in record.batches] == [0, 1, 2, 3]
    assert list(record.errors.values()) == [1]  # what went wrong in the first run is still told


def test_batches_that_come_again_are_counted_once() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=2)))
    scene.gateway.repeat = True
    scene.see(SKEWED)
    for _ in range(10):
        scene.loop.step()
    assert scene.gateway.calls == 0
    assert [batch.batch for batch in scene.record().batches] == [0]


def test_batches_that_come_late_and_unordered_are_put_in_order() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=99)))
    scene.query.run(SKEWED, 3)
    scene.query.committed.reverse()
    scene.loop.step()
    assert [batch.batch for batch in scene.record().batches] == [0, 1, 2]


def test_what_a_run_did_before_the_first_look_is_remembered_but_not_acted_on() -> None:
    query = FakeQuery()
    query.run(SKEWED, 5)
    scene = Scene(query)
    assert len(scene.record().batches) == 5
    assert scene.gateway.calls == 0
    scene.see(SKEWED)
    assert scene.gateway.calls == 1


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


def test_a_cost_function_of_the_users_own_decides() -> None:
    by_key = {0: 1.0, 2: 1.0, 4: 1.0, 6: 1.0, 1: 100.0, 3: 100.0}
    scene = Scene(settings=replace(EAGER, cost=lambda hashes, rows: [by_key[h] for h in hashes.tolist()]))
    scene.see({0: 25, 2: 25, 4: 25, 6: 25, 1: 50, 3: 50})
    assert scene.gateway.calls == 1
    moved = scene.query.pins[0][1]
    assert set(moved.move_hashes.tolist()) & {1, 3}


def test_a_table_published_by_hand_is_taken_over() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=50)))
    scene.see(SKEWED)
    scene.query.publish(Table(2, {0: 1, 4: 1}))
    record = scene.see(SKEWED, 3)
    assert (record.epoch, record.entries) == (1, 2)
    assert record.why.startswith("level")
    [swap] = record.swaps
    assert (swap.why, swap.key_hashes, swap.before, swap.predicted) == ("published by hand", (0, 4), 1.0, None)
    assert (swap.state_rows, swap.bytes_moved, swap.export_ms) == (6, 2000, 120)


def test_a_table_published_by_hand_overtakes_a_swap() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.query.publish(Table(2, {0: 1, 4: 1}))  # pinned to the same batch, under epoch 2
    record = scene.see(SKEWED, 3)
    assert record.epoch == 2
    assert [words for words in record.errors if "epoch 2, which was published by someone else" in words]
    assert scene.gateway.calls == 1


def test_a_swap_whose_batch_ran_under_the_old_table_has_failed() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.query.pins.clear()
    record = scene.see(SKEWED)
    assert [words for words in record.errors if words.endswith("batch 1 still ran under epoch 0")]
    assert record.epoch == 0


def test_a_query_that_comes_with_a_table_goes_on_from_it() -> None:
    query = FakeQuery()
    query.publish(Table(2, {0: 1, 4: 1}))
    scene = Scene(query)
    record = scene.see(SKEWED, 3)
    assert (record.epoch, record.entries, record.why[:5]) == (1, 2, "level")
    assert scene.gateway.calls == 0


def test_a_table_for_another_number_of_partitions_means_plain_hashing() -> None:
    query = FakeQuery(partitions=4)
    query.publish(Table(2, {0: 1}))
    query.pins[0] = (0, Table(4, epoch=1))
    scene = Scene(query)
    scene.gateway.latest = lambda _: Table(2, {0: 1}, epoch=1).encode()  # type: ignore[method-assign]
    scene.see({0: 10, 1: 10, 2: 10, 7: 10})
    assert (scene.record().epoch, scene.record().entries) == (1, 0)
    assert scene.record().why.startswith("level")


def test_a_window_holds_batches_of_several_epochs() -> None:
    seen: list[tuple[int, ...]] = []

    def spy(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
        seen.append(snapshot.batches)
        return mixed(snapshot, table, limits)

    scene = Scene(settings=replace(EAGER, policy=spy, window=3, decay=1, pace=Pace(patience=5, cooldown_seconds=0)))
    scene.see(SKEWED, 5)
    assert seen == [(2, 3, 4)]
    scene.see({1: 40, 3: 40, 5: 10, 7: 10}, 6)
    assert seen[1] == (7, 8, 9)
    scene = Scene(settings=replace(EAGER, policy=spy, window=3))
    scene.see(SKEWED)
    scene.see({})
    scene.see({1: 40, 3: 40, 5: 10, 7: 10})
    assert seen[-1] == (0, 2), "the batch before the swap and the one after it, not the one without rows"


def test_a_planner_that_waits_is_told_when_the_loop_has_decided_even_if_that_failed() -> None:
    scene = Scene(settings=replace(EAGER, plan_wait_ms=50))
    scene.see(SKEWED, 2)
    assert scene.gateway.decisions == [("query-1", -1), ("query-1", 0), ("query-1", 1)]
    scene.gateway.fail["observed"] = CheckpointError("odd")
    scene.see(SKEWED)
    assert scene.gateway.decisions[-1] == ("query-1", 2)


def test_nobody_is_told_where_no_planner_waits() -> None:
    scene = Scene()
    scene.see(SKEWED, 2)
    assert scene.gateway.decisions == []


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
def test_a_session_that_ends_inside_a_call_ends_the_loop_quietly(call: str, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_swap_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, logger="skewless"):
        scene.see(SKEWED, 5)
    [line] = [record.getMessage() for record in caplog.records if record.name == "skewless"]
    assert line.startswith("query clicks: batch 1 went to epoch 1: 2 keys moved (hashes ")
    assert "6 state rows, 2.0 kB, export 120 ms, batch 1100 ms (100 ms longer)" in line


def test_ended_queries_are_forgotten_in_the_end() -> None:
    scene = Scene()
    scene.gateway.end(scene.query)
    for number in range(40):
        query = FakeQuery(f"query {number}", f"run {number}")
        scene.gateway.queries.append(query)
        scene.loop.step()
        scene.gateway.end(query)
        scene.loop.step()
    assert len(scene.loop.status().queries) == 20
    assert scene.loop.status().queries[-1].query_id == "query 39"


def test_the_thread_starts_stops_and_stops_again() -> None:
    gateway = FakeGateway(FakeQuery())
    loop = Loop(gateway, replace(EAGER, poll_seconds=0.001))
    seen = threading.Event()
    gateway.active = lambda: [seen.set()] and list(gateway.queries)  # type: ignore[func-returns-value, method-assign]
    loop.start()
    assert seen.wait(10)
    assert loop.running
    loop.stop()
    loop.stop()
    assert not loop.running
    assert not gateway.watched, "no keys are counted any more"
    assert loop.status().loop == "the loop is over: stopped (policy mixed, max_imbalance 0.08, max_entries 3000)"


def test_a_policy_may_stop_the_loop_from_its_own_thread() -> None:
    query = FakeQuery()
    gateway = FakeGateway(query)

    def policy(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
        loop.stop()
        return mixed(snapshot, table, limits)

    loop = Loop(gateway, replace(EAGER, policy=policy, poll_seconds=0.001))
    loop.step()
    query.run(SKEWED)
    loop.start()
    loop._thread.join(10)  # type: ignore[union-attr]
    assert not loop.running


def test_status_may_be_asked_for_while_the_loop_works() -> None:
    query = FakeQuery()
    loop = Loop(FakeGateway(query), replace(EAGER, poll_seconds=0.0001))
    loop.start()
    for _ in range(200):
        query.run(SKEWED)
        for record in loop.status().queries:
            assert all(a.batch < b.batch for a, b in zip(record.batches, record.batches[1:], strict=False))
            str(loop.status())
    loop.stop()
    assert loop.status().queries[0].errors == {}


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


# -- what is told elsewhere ------------------------------------------------------------------------------------------


def test_every_swap_is_logged_in_one_line_once_its_gain_is_known(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(FakeQuery(values={0: "alice", 2: "bob", 4: "x", 6: "y"}))
    with caplog.at_level(logging.INFO, logger="skewless"):
        scene.see(SKEWED, 2)
        assert not caplog.records  # the swap's own batch says nothing of its gain
        scene.see(SKEWED, 20)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("query clicks: batch 1 went to epoch 1: 2 keys moved (")
    assert '"alice" (hash 0)' in line or '"bob" (hash 2)' in line
    assert line.endswith("imbalance 1.000 before, 0.000 predicted, 0.000 realised; batches take 0.50 of the time since")
    assert caplog.records[0].name == "skewless"


def test_a_swap_is_logged_when_its_query_ends_before_another_batch(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, logger="skewless"):
        scene.see(SKEWED, 2)
        scene.gateway.end(scene.query)
        scene.loop.step()
    [line] = [record.getMessage() for record in caplog.records]
    assert line.endswith("no batch since")


def test_no_value_is_told_of_a_query_that_shows_none(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, logger="skewless"):
        record = scene.see(SKEWED, 5)
    assert all(key.value is None for batch in record.batches for key in batch.hot_keys)
    assert record.swaps[0].key_values == ()
    assert '"' not in caplog.text


def test_only_so_many_values_are_remembered_and_the_newest_stay() -> None:
    query = FakeQuery()
    scene = Scene(query)
    for first in range(0, 3 * KEPT_VALUES, KEPT_VALUES):
        rows = dict.fromkeys(range(first, first + KEPT_VALUES), 1)
        query.values = {key: f"v{key}" for key in rows}
        record = scene.see(rows)
        key = record.batches[-1].hot_keys[0]
        assert key.value == f"v{key.key_hash}"
    [(_, watch)] = scene.loop._watches.values()
    assert set(watch._values) == set(rows)


def test_metrics_are_told_when_something_has_changed_and_only_then() -> None:
    scene = Scene()
    assert scene.gateway.told == [("query-1", None, None, 0)]
    scene.see(SKEWED)
    assert scene.gateway.told[-1] == ("query-1", 1.0, None, 0)
    scene.see(SKEWED, 2)
    assert scene.gateway.told[-1] == ("query-1", 0.0, 100.0, 0)
    calls = len(scene.gateway.told)
    scene.see(SKEWED, 5)
    assert len(scene.gateway.told) == calls
    scene.gateway.fail["observed"] = CheckpointError("gone")
    scene.see(SKEWED)
    assert scene.gateway.told[-1] == ("query-1", 0.0, 100.0, 1)


def test_metrics_that_cannot_be_told_cost_nothing_and_are_told_later(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.gateway.fail["tell"] = CheckpointError("no metrics")
    with caplog.at_level(logging.WARNING):
        record = scene.see(SKEWED, 6)
    assert (record.epoch, record.errors) == (1, {})
    assert scene.loop.status().errors == {"CheckpointError: no metrics": 6}
    assert len(caplog.records) == 1
    del scene.gateway.fail["tell"]
    scene.see(SKEWED)
    assert scene.gateway.told[-1] == ("query-1", 0.0, 100.0, 0)


def test_a_new_run_of_a_query_is_told_anew() -> None:
    scene = Scene()
    scene.see(LEVEL, 3)
    calls = len(scene.gateway.told)
    scene.query.runId = "run-2"
    scene.loop.step()
    assert len(scene.gateway.told) == calls + 1


def test_the_first_batch_of_a_run_is_no_measure_of_the_others() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=3, cooldown_seconds=0)))
    scene.query.run(SKEWED)
    scene.query.committed[0] = replace(scene.query.committed[0], batch_ms=90_000)  # it starts Python workers
    scene.loop.step()
    record = scene.see(SKEWED, 6)
    [swap] = record.swaps
    assert (swap.usual_ms, swap.before_ms, record.gain(swap)) == (1000, 1000, 2.0)


def test_a_gain_is_against_the_last_batches_before_the_swap_not_the_level_ones_long_ago() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=2, cooldown_seconds=0)))
    scene.see(LEVEL, 30)
    record = scene.see(SKEWED, 6)
    [swap] = record.swaps
    assert (swap.usual_ms, swap.before_ms) == (500, 1000)
    assert record.gain(swap) == 2.0
