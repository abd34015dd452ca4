from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from fake_gateway import LEVEL, SKEWED, FakeGateway, FakeQuery
from loop_scene import EAGER, Scene
from skewless.control.loop import Loop
from skewless.control.pace import Pace
from skewless.control.swap_cost import SwapCost
from skewless.errors import CheckpointError, QueryError
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.mixed import mixed


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
    assert (swap.batch, swap.moved, swap.before, swap.predicted, record.realised(swap)) == (
        1,
        2,
        1.0,
        0.0,
        0.0,
    )
    assert (swap.state_rows, swap.bytes_moved, swap.export_ms) == (6, 2000, 120)
    assert (swap.expected_ms, swap.batch_ms, swap.pause_ms) == (500, 600, 100)
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
    slow.query.committed.append(replace(slow.query.committed.pop(), batch_ms=1200))
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
    assert record.why == "the query has ended; epoch 1 waits for batch 1, should it start again"
    assert record.errors == {}
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
    assert (swap.why, swap.key_hashes, swap.before, swap.predicted) == (
        "published by hand",
        (0, 4),
        1.0,
        None,
    )
    assert (swap.state_rows, swap.bytes_moved, swap.export_ms) == (6, 2000, 120)


def test_a_table_published_by_hand_overtakes_a_swap() -> None:
    scene = Scene()
    scene.see(SKEWED)
    scene.query.publish(Table(2, {0: 1, 4: 1}))  # pinned to the same batch, under epoch 2
    record = scene.see(SKEWED, 3)
    assert record.epoch == 2
    assert [words for words in record.errors if "epoch 2, which was published by someone else" in words]
    assert scene.gateway.calls == 1


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

    scene = Scene(
        settings=replace(EAGER, policy=spy, window=3, decay=1, pace=Pace(patience=5, cooldown_seconds=0))
    )
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
    assert (
        loop.status().loop
        == "the loop is over: stopped (policy mixed, max_imbalance 0.08, max_entries 3000, splits off)"
    )


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
