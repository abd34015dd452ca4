"""The loop places beside its swaps: whatever goes wrong with one leaves the other alone."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fake_gateway import Clock, FakeGateway, FakeQuery
from skewless.control.loop import Loop
from skewless.control.observed import ObservedBatch
from skewless.control.pace import Pace
from skewless.control.placement_pace import PlacementPace
from skewless.control.scaling import Scale
from skewless.control.settings import Settings
from skewless.errors import PolicyError, SettingError
from skewless.report.page import page

EAGER = Settings(
    pace=Pace(patience=1, cooldown_seconds=0),
    placement="greedy",
    placement_pace=PlacementPace(patience=1, cooldown_seconds=0, plan_share=1.0),
)
ON_A = {0: 10, 2: 10, 4: 10, 6: 10}  # rows by key hash: partitions 0 and 2 of 4
HEAVY = {0: 60, 4: 50, 2: 10, 6: 10}  # and partition 0 more than a fair share


class PlacingGateway(FakeGateway):
    """Both executors have a slot; even partitions begin on the first, odd ones on the second."""

    def __init__(self, *queries: FakeQuery) -> None:
        super().__init__(*queries)
        self.wishes: dict[int, str] = {}
        self.wished_from = 1 << 30
        self.asked = 0

    def executors(self) -> dict[str, int]:
        self.asked += 1
        self._may_fail("executors")
        return {"a": 1, "b": 1}

    def warm_executor(self, executor: str) -> None:
        raise AssertionError("nothing has come")

    def place(self, query: FakeQuery, wishes: dict[int, str]) -> None:
        self._may_fail("place")
        self.wishes, self.wished_from = dict(wishes), query.next_batch

    def observed(self, query_id: str, after: int) -> list[ObservedBatch]:
        return [self._placed(batch) for batch in super().observed(query_id, after)]

    def _placed(self, batch: ObservedBatch) -> ObservedBatch:
        wishes: dict[int, str] = self.wishes if batch.batch >= self.wished_from else {}
        where = ["ab".index(wishes.get(p, "ab"[p % 2])) for p in range(batch.partitions)]
        return replace(
            batch,
            executors=np.array(where),
            slots=np.array([1, 1]),
            executor_ids=("a", "b"),
            busy_ms=np.array([0, 0]),
            locality_wait_ms=3000,
        )


class Scene:
    def __init__(self, settings: Settings = EAGER) -> None:
        self.query = FakeQuery(partitions=4)
        self.gateway = PlacingGateway(self.query)
        self.clock = Clock()
        self.loop = Loop(self.gateway, settings, self.clock)

    def see(self, rows: dict[int, int], times: int = 1) -> None:
        for _ in range(times):
            self.query.run(rows)
            self.clock.now += 1
            assert self.loop.step()
            deadline = time.monotonic() + 10
            while self.loop._placing.busy_since is not None:
                assert time.monotonic() < deadline
                time.sleep(0.001)


def test_the_loop_places_and_tells() -> None:
    scene = Scene()
    scene.see(ON_A, 4)
    assert {scene.gateway.wishes[0], scene.gateway.wishes[2]} == {"a", "b"}
    status = scene.loop.status()
    assert status.placing is not None
    assert "placement by greedy: 1 plan, 1 partition moved" in str(status)
    assert "executor b: 3 partitions" in str(status)
    html = page(status)
    assert "executor a" in html
    assert "Load distance" in html


def test_placement_is_off_by_default_and_asks_nothing() -> None:
    scene = Scene(Settings())
    scene.see(ON_A, 4)
    assert scene.gateway.asked == 0
    assert scene.loop.status().placing is None


def test_keys_are_levelled_first_and_then_partitions_placed() -> None:
    scene = Scene(replace(EAGER, placement_pace=PlacementPace(cooldown_seconds=0, plan_share=1.0)))
    scene.see(HEAVY, 12)
    assert scene.gateway.published
    assert scene.gateway.wished_from > scene.loop.status().queries[0].swaps[0].batch


def test_a_placement_that_fails_stops_no_swap_and_is_counted() -> None:
    scene = Scene()
    scene.gateway.fail["executors"] = RuntimeError("gone")
    scene.see(HEAVY, 4)
    assert scene.gateway.published
    assert scene.loop.status().errors == {}
    assert scene.loop.placer.troubles.counts == {"RuntimeError: gone": 4}


def test_a_policy_that_never_returns_holds_up_no_swap() -> None:
    def slow(placement: Any, limits: Any) -> Any:
        asleep.set()
        awake.wait(60)
        raise SystemExit

    asleep, awake = threading.Event(), threading.Event()

    scene = Scene(replace(EAGER, placement=slow))
    for _ in range(4):
        scene.query.run(HEAVY)
        scene.loop.step()
    assert asleep.is_set()
    assert scene.loop._placing.busy_since is not None  # it was planning all the while
    assert scene.gateway.published
    awake.set()


def test_tables_by_hand_and_placement_by_the_loop() -> None:
    scene = Scene(replace(EAGER, policy=None))
    scene.see(HEAVY, 6)
    assert scene.gateway.published == []
    assert scene.gateway.wishes
    assert "placement greedy; tables are published by hand" in scene.loop.status().loop


def test_an_excluded_query_is_not_placed() -> None:
    scene = Scene()
    scene.loop.choice.exclude("clicks")
    scene.see(ON_A, 4)
    assert scene.gateway.wishes == {}


def test_a_loop_that_was_stopped_places_no_more() -> None:
    scene = Scene()
    scene.loop.stop()
    scene.loop.place()
    scene.query.run(ON_A, 3)
    scene.loop.place()
    assert scene.gateway.wishes == {}


@pytest.mark.parametrize(
    "wrong",
    [{"placement": "magic"}, {"placement": 3}, {"scale": 3}, {"placement_pace": 1}],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((SettingError, PolicyError)):
        Settings(**wrong)


def test_scaling_without_a_placement_policy_plans_by_the_greedy() -> None:
    assert Settings(scale=Scale()).placement_name == "greedy"
