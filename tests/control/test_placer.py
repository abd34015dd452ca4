"""The loop levels partitions over executors, empties those that leave, and never moves one for nothing."""

from __future__ import annotations

import threading
import time

import pytest

from fake_cluster import FakeCluster, PlacedQuery
from skewless.control.placement_pace import PlacementPace
from skewless.control.placer import Placer
from skewless.errors import QueryError, SettingError
from skewless.policies import groups

EAGER = PlacementPace(patience=1, cooldown_seconds=0, plan_share=1.0)


def bad(count: int = 8) -> PlacedQuery:
    """All partitions but one on executor a of two."""
    return PlacedQuery(["a"] * (count - 1) + ["b"], [0.1] * count)


class Scene:
    def __init__(
        self, cluster: FakeCluster, pace: PlacementPace = EAGER, policy: str | None = "greedy"
    ) -> None:
        self.cluster = cluster
        chosen = None if policy is None else groups.get(policy)
        self.placer = Placer(cluster, chosen, policy or "off", pace, cluster.clock)

    def see(self, times: int = 1) -> None:
        for _ in range(times):
            self.cluster.run()
            self.placer.step(self.cluster.by_id)

    @property
    def why(self) -> str:
        return self.placer.record.why


def two(query: PlacedQuery) -> FakeCluster:
    return FakeCluster({"a": 1, "b": 1}, query)


@pytest.mark.parametrize("policy", groups.names())
def test_a_bad_first_placement_is_levelled_and_then_left_alone(policy: str) -> None:
    query = bad()
    scene = Scene(two(query), policy=policy)
    scene.see(8)
    assert (query.holders.count("a"), query.holders.count("b")) == (4, 4)
    assert len(query.placed) == 1
    assert set(query.placed[0]) == set(range(8))  # those that stay are named, too
    assert scene.placer.record.distance == 0


def test_a_level_query_is_never_placed() -> None:
    query = PlacedQuery(["a", "a", "b", "b"], [0.1] * 4)
    scene = Scene(two(query))
    scene.see(20)
    assert query.placed == []
    assert "level" in scene.why


def test_with_a_slot_for_every_partition_nothing_is_gained_and_nothing_moved() -> None:
    query = bad(4)
    scene = Scene(FakeCluster({"a": 4, "b": 4}, query))
    scene.see(10)
    assert query.placed == []
    assert "no plan: it would save 0.00 s" in scene.why


def test_loading_that_takes_longer_than_it_saves_is_not_done() -> None:
    query = bad()
    query.state_bytes = [10**12] * 8
    scene = Scene(two(query))
    scene.see(10)
    assert query.placed == []
    assert "of loading" in scene.why


def test_state_without_a_recent_snapshot_costs_more() -> None:
    query = bad()
    query.state_bytes, query.snapshots = [4 * 10**9] * 8, [-1] * 8
    scene = Scene(two(query), PlacementPace(patience=1, cooldown_seconds=0, plan_share=1.0))
    scene.see(10)
    assert query.placed == []  # replayed it takes 144 s, and 15 s are saved
    query.snapshots = [5] * 8  # recent
    query.state_bytes = [4 * 10**8] * 8
    scene.see(2)
    assert query.placed


def test_patience_is_kept() -> None:
    query = bad()
    scene = Scene(two(query), PlacementPace(patience=4, cooldown_seconds=0, plan_share=1.0))
    scene.see(3)
    assert query.placed == []
    assert "patient: uneven in 3 of 4" in scene.why
    scene.see()
    assert query.placed


def test_a_plan_moves_no_more_than_its_budget_and_several_plans_get_there() -> None:
    query = bad()
    query.state_bytes = [100] * 8
    scene = Scene(two(query), PlacementPace(patience=1, cooldown_seconds=1000, plan_share=0.125))
    seen = []
    for _ in range(12):
        before = list(query.holders)
        scene.see()
        seen.append(sum(a != b for a, b in zip(before, query.holders, strict=True)))
    assert max(seen) == 1
    assert query.holders.count("a") == 4


def test_no_partition_moves_twice_within_its_cool_down() -> None:
    query = bad()
    scene = Scene(two(query), PlacementPace(patience=1, cooldown_seconds=100, plan_share=1.0))
    scene.see(3)
    moved = [p for p in range(7) if query.holders[p] == "b"]
    assert moved
    query.seconds = [1.0 if p in moved else 0.01 for p in range(8)]  # now those are the heavy ones
    scene.see(10)
    assert all(query.holders[p] == "b" for p in moved)
    scene.cluster.clock.now += 100
    scene.see(8)
    assert not all(query.holders[p] == "b" for p in moved)


def test_a_plan_whose_queue_is_longer_than_the_locality_wait_is_not_made() -> None:
    def everything_on_b(placement, limits):  # type: ignore[no-untyped-def]
        return groups.get("greedy")(placement, limits).__class__(placement, 0 * placement.sources + 1, 0.0)

    query = PlacedQuery(["a"] * 3 + ["b"], [4.0, 4.0, 4.0, 1.0])
    cluster = two(query)
    placer = Placer(cluster, everything_on_b, "bad", EAGER, cluster.clock)
    for _ in range(5):
        cluster.run()
        placer.step(cluster.by_id)
    assert query.placed == []
    assert "no plan" in placer.record.why


def test_a_task_that_ran_elsewhere_stays_there() -> None:
    query = bad()
    scene = Scene(two(query))
    scene.see(4)
    moved = next(p for p in range(7) if query.holders[p] == "b")
    query.ignores_wishes = frozenset([moved])
    query.holders[moved] = "a"
    scene.see(1)
    assert query.wishes[moved] == "a"
    assert scene.placer.record.batches[-1].strays == (moved,)


def test_an_executor_that_leaves_is_emptied_even_where_nothing_is_levelled() -> None:
    query = PlacedQuery(["a", "b", "c", "c"], [0.1, 0.1, 0.1, 0.1])
    cluster = FakeCluster({"a": 1, "b": 1, "c": 1}, query)
    scene = Scene(cluster, policy=None)
    scene.see(3)
    assert query.placed == []
    scene.placer.leave("c")
    scene.see(3)
    assert "c" not in query.holders
    assert query.holders[:2] == ["a", "b"]
    assert scene.placer.holding("c") == []


def test_an_executor_is_emptied_over_several_batches_within_the_budget() -> None:
    query = PlacedQuery(["a"] * 6 + ["b"] * 6, [0.1] * 12, state_bytes=[100] * 12)
    scene = Scene(two(query), PlacementPace(patience=1, cooldown_seconds=0, plan_share=0.25))
    scene.see()
    scene.placer.leave("a")
    held = []
    for _ in range(6):
        scene.see()
        held.append(query.holders.count("a"))
    assert held[-1] == 0
    assert any(0 < count < 6 for count in held)  # not at once


def test_an_executor_that_dies_after_it_was_named_is_planned_around() -> None:
    query = bad()
    cluster = FakeCluster({"a": 1, "b": 1, "c": 1}, query)
    scene = Scene(cluster)
    scene.see(3)
    assert "c" in query.holders
    cluster.kill("c")
    scene.see(6)
    assert set(query.holders) == {"a", "b"}
    assert "c" not in query.wishes.values()
    assert abs(query.holders.count("a") - query.holders.count("b")) <= 1


def test_an_executor_that_dies_while_it_is_named_leaves_the_old_wishes_and_is_tried_again() -> None:
    query = bad()
    cluster = two(query)
    scene = Scene(cluster)
    cluster.fail["place"] = SettingError("executor 'b' is not alive")
    scene.see(2)
    assert query.wishes == {}
    assert "planned again" in scene.why
    assert scene.placer.record.errors == {"SettingError: executor 'b' is not alive": 2}
    cluster.fail.clear()
    scene.see(2)
    assert query.holders.count("b") == 4


def test_a_query_that_cannot_be_placed_is_left_alone_and_the_others_are_not() -> None:
    first, second = bad(), bad()
    second.id, second.runId, second.name = "query-2", "run-2", "visits"
    cluster = FakeCluster({"a": 1, "b": 1}, first, second)
    real = cluster.place

    def place(query: PlacedQuery, wishes: dict[int, str]) -> None:
        if query is first:
            raise QueryError("it keeps no state")
        real(query, wishes)

    cluster.place = place  # type: ignore[method-assign]
    scene = Scene(cluster)
    scene.see(6)
    assert first.placed == []
    assert second.holders.count("a") == 4, scene.why
    assert scene.placer.refused("query-1") == "it keeps no state"


def test_two_queries_are_levelled_together() -> None:
    first = PlacedQuery(["a"] * 4, [0.1] * 4)
    second = PlacedQuery(["b", "b", "a", "a"], [0.1] * 4, "query-2", "run-2", "visits")
    scene = Scene(FakeCluster({"a": 1, "b": 1}, first, second))
    scene.see(5)
    assert [*first.holders, *second.holders].count("a") == 4


def test_what_a_swap_changed_is_learned_anew_and_its_own_batch_is_not_counted() -> None:
    query = PlacedQuery(["a", "a", "b", "b"], [0.1] * 4)
    scene = Scene(two(query))
    scene.see(5)
    query.epoch, query.seconds = 1, [5.0, 0.1, 0.1, 0.1]  # the swap's batch
    scene.see()
    query.seconds = [0.1] * 4
    scene.see(5)
    assert query.placed == []


def test_a_new_run_of_a_query_is_learned_anew() -> None:
    query = bad()
    scene = Scene(two(query))
    scene.see(3)
    query.runId, query.wishes, query.holders = "run-2", {}, ["a"] * 8
    scene.see(4)
    assert query.holders.count("a") == 4


def test_a_policy_that_raises_leaves_everything_as_it_is() -> None:
    def broken(placement, limits):  # type: ignore[no-untyped-def]
        raise ZeroDivisionError

    query = bad()
    cluster = two(query)
    placer = Placer(cluster, broken, "broken", EAGER, cluster.clock)
    cluster.run()
    with pytest.raises(ZeroDivisionError):  # the loop notes it
        placer.step(cluster.by_id)
    assert query.placed == []


def test_only_one_executor_may_hold_partitions_and_nothing_is_planned() -> None:
    query = PlacedQuery(["a"] * 4, [0.1] * 4)
    scene = Scene(FakeCluster({"a": 1}, query))
    scene.placer.leave("a")
    scene.see(3)
    assert query.placed == []
    assert scene.why == "no executor may take partitions"


def test_the_record_says_who_holds_what_planned_and_real() -> None:
    query = bad()
    scene = Scene(two(query))
    scene.see()
    a, b = scene.placer.record.executors
    assert (a.held, a.planned, b.held, b.planned) == (7, 4, 1, 4)
    assert scene.placer.record.batches[-1].remote_share == 0.5
    assert "executor a: 7 partitions (planned 4), 70% busy with them, 1 slot" in str(a)


def test_an_executor_that_comes_takes_partitions_once_it_is_warm() -> None:
    query = PlacedQuery(["a", "a", "a", "b", "b", "b"], [0.1] * 6)
    cluster = two(query)
    gate = threading.Event()
    cluster.warm_executor = lambda executor: (gate.wait(10), cluster.warmed.append(executor))  # type: ignore[assignment,return-value]
    scene = Scene(cluster)
    scene.see(3)
    cluster.alive["c"], cluster.busy["c"] = 1, 0
    scene.see(3)
    assert scene.placer.warming == {"c"}
    assert "warming up" in str(scene.placer.record.executors[2])
    assert query.placed == []
    gate.set()
    deadline = time.monotonic() + 10
    while scene.placer.warming:
        assert time.monotonic() < deadline
    scene.see(3)
    assert cluster.warmed == ["c"]
    assert query.holders.count("c") == 2
