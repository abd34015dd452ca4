"""Executors come when work asks for them and go when they hold nothing, and what goes wrong is said."""

from __future__ import annotations

import time

from fake_cluster import FakeCluster, PlacedQuery
from skewless.control.placement_pace import PlacementPace
from skewless.control.placer import Placer
from skewless.control.scaler import Scaler
from skewless.control.scaling import Scale
from skewless.policies import groups

EAGER = PlacementPace(patience=1, cooldown_seconds=0, plan_share=1.0)


class Scene:
    def __init__(self, cluster: FakeCluster, scale: Scale) -> None:
        self.cluster = cluster
        policy = groups.get("greedy")
        self.placer = Placer(cluster, policy, "greedy", EAGER, cluster.clock)
        self.scaler = Scaler(cluster, self.placer, policy, scale, cluster.clock)

    def see(self, times: int = 1) -> None:
        for _ in range(times):
            self.cluster.run()
            self.scaler.step(self.placer.step(self.cluster.by_id))
            deadline = time.monotonic() + 10
            while self.scaler._worker.busy_since is not None or self.placer.warming:
                assert time.monotonic() < deadline
                time.sleep(0.001)

    @property
    def why(self) -> str:
        return self.placer.scaling


def even(executors: int, seconds: float, per_executor: int = 4) -> FakeCluster:
    names = [str(e) for e in range(executors)]
    query = PlacedQuery(names * per_executor, [seconds] * (executors * per_executor))
    return FakeCluster(dict.fromkeys(names, 1), query)


def test_a_busy_cluster_gets_an_executor_which_is_warmed_and_filled() -> None:
    cluster = even(2, 0.23)  # 92% of each second
    cluster.comes = ["2"]
    scene = Scene(cluster, Scale(max=4, patience=2))
    scene.see(12)
    assert cluster.requested == [3]
    assert cluster.warmed == ["2"]
    assert sorted(cluster.queries[0].holders.count(e) for e in "012") == [2, 3, 3]
    assert "3 executors now" in scene.why


def test_an_idle_cluster_gives_an_executor_back_once_it_holds_nothing() -> None:
    cluster = even(3, 0.03)  # 12%
    scene = Scene(cluster, Scale(min=2, max=4, patience=2))
    scene.see(12)
    assert len(cluster.ended) == 1
    assert len(cluster.alive) == 2
    assert set(cluster.queries[0].holders) == set(cluster.alive)
    assert "ended executor" in scene.why


def test_never_fewer_than_min_nor_more_than_max() -> None:
    idle, busy = even(2, 0.01), even(2, 0.3)
    scenes = [Scene(idle, Scale(min=2, max=4, patience=1)), Scene(busy, Scale(max=2, patience=1))]
    for scene in scenes:
        scene.see(10)
    assert (idle.ended, busy.requested) == ([], [])


def test_a_load_at_the_target_changes_nothing() -> None:
    cluster = even(2, 0.165)
    scene = Scene(cluster, Scale(max=4, patience=1))
    scene.see(10)
    assert (cluster.requested, cluster.ended) == ([], [])
    assert "66% of the slots' time is used" in scene.why


def test_what_tasks_without_state_take_counts_too() -> None:
    cluster = even(2, 0.05)
    scene = Scene(cluster, Scale(max=4, patience=2))
    for _ in range(6):
        cluster.busy = {executor: busy + 700 for executor, busy in cluster.busy.items()}
        scene.see()
    assert cluster.requested == [3]


def test_with_a_slot_for_each_partition_no_more_executors_are_asked_for() -> None:
    cluster = even(2, 0.95, per_executor=1)
    scene = Scene(cluster, Scale(max=4, patience=1))
    scene.see(6)
    assert cluster.requested == []
    assert "a slot for each partition" in scene.why


def test_an_executor_that_never_comes_is_waited_for_only_so_long_and_said() -> None:
    cluster = even(2, 0.23)
    scene = Scene(cluster, Scale(max=4, patience=1, wait_seconds=3, cooldown_seconds=1000))
    scene.see(20)
    assert cluster.requested == [3, 2]  # asked for, and taken back
    assert "asked for 3 executors; in 3 s there were 2: the cluster has no room" in scene.why


def test_one_batch_that_is_busy_adds_no_executor() -> None:
    cluster = even(2, 0.1)
    scene = Scene(cluster, Scale(max=4, patience=3))
    scene.see(3)
    cluster.queries[0].seconds = [0.25] * 8
    scene.see()
    cluster.queries[0].seconds = [0.16] * 8
    scene.see(5)
    assert cluster.requested == []


def test_after_a_change_the_scaler_rests() -> None:
    cluster = even(2, 0.24, per_executor=8)
    cluster.comes = ["2", "3", "4"]
    scene = Scene(cluster, Scale(max=3, patience=1, cooldown_seconds=1000))
    scene.see(20)
    assert len(cluster.requested) == 1


def test_an_executor_that_dies_while_it_is_emptied_is_not_ended_again() -> None:
    cluster = even(3, 0.03)
    scene = Scene(cluster, Scale(min=2, max=4, patience=1))
    while not scene.placer.leaving:
        scene.see()
    cluster.kill(next(iter(scene.placer.leaving)))
    scene.see(6)
    assert cluster.ended == []
    assert scene.placer.leaving == frozenset()
    assert len(cluster.alive) == 2


def test_a_refusal_to_end_an_executor_is_said_and_it_takes_partitions_again() -> None:
    cluster = even(3, 0.03)
    cluster.fail["end_executor"] = RuntimeError("no")
    scene = Scene(cluster, Scale(min=2, max=4, patience=1, cooldown_seconds=1000))
    scene.see(15)
    assert scene.placer.leaving == frozenset()
    assert "was not ended: RuntimeError: no" in scene.why


def test_stopped_in_the_middle_everything_stays_as_it_is() -> None:
    cluster = even(3, 0.03)
    scene = Scene(cluster, Scale(min=2, max=4, patience=1))
    while not scene.placer.leaving:
        scene.see()
    scene.scaler.stop()
    assert scene.placer.leaving == frozenset()
    assert cluster.ended == []
    assert "stopped in the middle" in scene.why


def test_a_request_that_fails_is_noted_and_nothing_else_happens() -> None:
    cluster = even(2, 0.23)
    cluster.fail["request_executors"] = RuntimeError("master is gone")
    scene = Scene(cluster, Scale(max=4, patience=1, wait_seconds=3))
    scene.see(10)
    assert len(cluster.alive) == 2
    assert any("master is gone" in words for words in scene.placer.troubles.counts)
