"""Drained by hand: what cannot be meant is refused, what takes too long is said, and nothing else moves."""

from __future__ import annotations

from typing import Any

import pytest

from fake_cluster import FakeCluster, PlacedQuery
from skewless.control.loop import Loop
from skewless.control.placement_pace import PlacementPace
from skewless.control.settings import Settings
from skewless.errors import NotYetError, SettingError
from skewless.spark import drain as drains
from skewless.spark.drain import Drained

PACE = PlacementPace(cooldown_seconds=0)


class Scene:
    """Queries have a batch whenever somebody asks for the executors, if they have input."""

    def __init__(self, query: PlacedQuery, *executors: str) -> None:
        self.has_input = True
        self.cluster = FakeCluster(dict.fromkeys(executors, 1), query)
        asked = self.cluster.executors

        def executors_now() -> dict[str, int]:
            if self.has_input:
                self.cluster.run()
            return asked()

        self.cluster.executors = executors_now  # type: ignore[method-assign]
        gateway: Any = self.cluster
        self.loop = Loop(gateway, Settings(policy=None, placement_pace=PACE), self.cluster.clock)

    def drain(self, executor: Any, decommission: bool = False, seconds: float = 10) -> Drained:
        gateway: Any = self.cluster
        return drains.drain(gateway, self.loop, executor, decommission, seconds)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "POLL_SECONDS", 0.001)


def test_a_drained_executor_holds_nothing_and_the_others_keep_what_they_have() -> None:
    query = PlacedQuery(["a", "b", "c", "c"], [0.1] * 4)
    scene = Scene(query, "a", "b", "c")
    done = scene.drain("c")
    assert "c" not in query.holders
    assert query.holders[:2] == ["a", "b"]
    assert not done.ended
    assert scene.cluster.ended == []
    assert scene.loop.placer.leaving == {"c"}


def test_with_decommission_it_is_ended_too() -> None:
    scene = Scene(PlacedQuery(["a", "b", "c", "c"], [0.1] * 4), "a", "b", "c")
    done = scene.drain("c", decommission=True)
    assert done.ended
    assert scene.cluster.ended == ["c"]
    assert scene.loop.placer.leaving == frozenset()


def test_while_jobs_run_without_a_pause_no_executor_is_ended() -> None:
    scene = Scene(PlacedQuery(["a", "b", "c", "c"], [0.1] * 4), "a", "b", "c")
    scene.cluster.is_quiet = False
    with pytest.raises(NotYetError, match="without a pause"):
        scene.drain("c", decommission=True)
    assert scene.cluster.ended == []
    assert scene.loop.placer.leaving == {"c"}
    scene.cluster.is_quiet = True
    assert scene.drain("c", decommission=True).ended


def test_the_last_executor_and_a_stranger_are_refused() -> None:
    scene = Scene(PlacedQuery(["a", "b"], [0.1] * 2), "a", "b")
    for wrong in ("c", 1, None):
        with pytest.raises(SettingError, match="is not alive"):
            scene.drain(wrong)
    scene.drain("a")
    with pytest.raises(SettingError, match="is the last one"):
        scene.drain("b")


def test_under_dynamic_allocation_nothing_is_decommissioned_and_nothing_drained() -> None:
    scene = Scene(PlacedQuery(["a", "b"], [0.1] * 2), "a", "b")
    scene.cluster.fixed = "dynamic allocation is on"
    with pytest.raises(SettingError, match="dynamic allocation is on"):
        scene.drain("a", decommission=True)
    assert scene.loop.placer.leaving == frozenset()
    assert not scene.drain("a").ended  # without decommission it may


def test_a_query_without_input_is_waited_for_only_so_long() -> None:
    query = PlacedQuery(["a", "b"], [0.1] * 2)
    scene = Scene(query, "a", "b")
    scene.cluster.run()
    scene.has_input = False
    with pytest.raises(NotYetError, match="still holds partitions of clicks"):
        scene.drain("a", seconds=0.05)
    scene.has_input = True
    scene.drain("a")
    assert query.holders == ["b", "b"]


def test_an_executor_that_dies_while_it_is_drained_is_drained() -> None:
    query = PlacedQuery(["a", "b"], [0.1] * 2, ignores_wishes=frozenset([0]))
    scene = Scene(query, "a", "b")
    with pytest.raises(NotYetError):
        scene.drain("a", seconds=0.05)
    scene.cluster.kill("a")
    with pytest.raises(SettingError, match="is not alive"):
        scene.drain("a")
    scene.loop.place()
    assert scene.loop.placer.leaving == frozenset()


def test_a_balancer_that_was_stopped_drains_nothing() -> None:
    scene = Scene(PlacedQuery(["a", "b"], [0.1] * 2), "a", "b")
    scene.loop.stop()
    with pytest.raises(SettingError, match="was stopped"):
        scene.drain("a")
