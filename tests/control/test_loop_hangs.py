"""A policy that does not return: what is shown meanwhile, and that nothing else waits for it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fake_gateway import SKEWED, FakeQuery
from loop_scene import EAGER, Scene
from skewless import policies
from skewless.control import loop as module
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What the policy waits for."""
    monkeypatch.setattr(module, "STEP_SECONDS", 0.2)
    event = threading.Event()
    yield event
    event.set()


def hanging(gate: threading.Event) -> Callable[[Snapshot, Table, Limits], Plan]:
    """Waits where partitions are three, and plans as Mixed does."""

    def slow(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
        if snapshot.partitions == 3:
            gate.wait()
        return policies.get("mixed")(snapshot, table, limits)

    return slow


def scene_of(gate: threading.Event) -> tuple[Scene, FakeQuery, FakeQuery]:
    stuck, other = FakeQuery(partitions=3), FakeQuery("query-2", "run-2", name="visits")
    return Scene(stuck, other, settings=replace(EAGER, policy=hanging(gate))), stuck, other


HOT = {0: 40, 3: 40, 6: 40}  # all at home in partition 0 of 3


def test_a_policy_that_hangs_is_shown_and_stops_no_other_query(gate: threading.Event) -> None:
    scene, stuck, other = scene_of(gate)
    for _ in range(4):
        stuck.run(HOT)
        other.run(SKEWED)
        assert scene.loop.step()
    assert re.fullmatch(r"planning \(policy slow\) since \d\d:\d\d:\d\d", scene.record(0).why)
    assert scene.record(0).running
    assert [query_id for query_id, _ in scene.gateway.published] == ["query-2"]
    assert len(scene.record(1).batches) == 4
    gate.set()
    eventually(lambda: scene.loop.step() and len(scene.gateway.published) == 2)
    eventually(lambda: scene.loop.step() and len(scene.record(0).batches) == 4)


def test_a_query_that_ends_while_its_policy_hangs_is_ended_once_that_returns(gate: threading.Event) -> None:
    scene, stuck, _ = scene_of(gate)
    stuck.run(HOT)
    scene.loop.step()
    scene.gateway.end(stuck)
    scene.loop.step()
    assert scene.record(0).why.startswith("planning")
    gate.set()
    eventually(lambda: scene.loop.step() and not scene.record(0).running)


def test_what_a_policy_returns_after_stop_is_not_published(gate: threading.Event) -> None:
    scene, stuck, _ = scene_of(gate)
    stuck.run(HOT)
    scene.loop.step()
    scene.loop.stop()
    gate.set()
    worker = scene.loop._workers["run-1"]
    eventually(lambda: worker.busy_since is None)
    assert not scene.gateway.published


def test_a_loop_that_was_stopped_while_a_policy_hangs_is_over(gate: threading.Event) -> None:
    scene, stuck, _ = scene_of(gate)
    stuck.run(HOT)
    scene.loop.start()
    eventually(lambda: scene.record(0).why.startswith("planning"))
    scene.loop.stop()
    assert not scene.loop.running
    assert "the loop is over: stopped" in scene.loop.status().loop


def eventually(found: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not found():
        assert time.monotonic() < end
        time.sleep(0.01)
