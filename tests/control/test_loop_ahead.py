"""A loop that is shown each batch before it runs, and makes its table from that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fake_gateway import LEVEL, SKEWED, FakeQuery
from loop_scene import EAGER, Scene
from skewless.control.pace import Pace
from skewless.control.settings import AHEAD_WAIT_MS, Settings
from skewless.control.swap_cost import SwapCost
from skewless.errors import CheckpointError, QueryError

AHEAD = replace(EAGER, look_ahead=True, pace=Pace(patience=5, cooldown_seconds=3600))


def _adverse(scene: Scene) -> dict[int, int]:
    """Rows of two keys that lie in one partition, whatever the table: no past can foresee them."""
    keys = np.arange(8, dtype=np.int32)
    at = scene.query.table_at(scene.query.next_batch).route(keys)
    crowded = keys[at == np.bincount(at).argmax()]
    return {int(crowded[0]): 50, int(crowded[1]): 50}


def _adverse_batches(scene: Scene, count: int) -> None:
    """Shown, decided about, run, seen."""
    for _ in range(count):
        rows = _adverse(scene)
        scene.query.show(rows)
        assert scene.loop.step()
        scene.see(rows)


def test_every_batch_is_level_although_each_is_skewed_in_its_own_way() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL)
    _adverse_batches(scene, 12)
    assert [batch.imbalance for batch in scene.record().batches] == [0.0] * 13
    assert scene.record().errors == {}
    assert scene.gateway.calls == 12


def test_without_a_look_ahead_the_same_batches_are_not() -> None:
    scene = Scene(settings=replace(AHEAD, look_ahead=False, pace=Pace(patience=1, cooldown_seconds=0)))
    scene.see(LEVEL)
    _adverse_batches(scene, 12)
    assert [batch.imbalance for batch in scene.record().batches] == [0.0] + [1.0] * 12


def test_the_planner_is_let_go_once_the_batch_it_waits_with_is_decided() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL)
    assert scene.gateway.decisions[-1] == ("query-1", 0)
    scene.query.show(LEVEL)
    scene.loop.step()
    assert scene.gateway.decisions[-1] == ("query-1", 1)
    assert scene.gateway.calls == 0


def test_a_batch_that_was_shown_is_not_judged_again_when_it_is_committed() -> None:
    scene = Scene(settings=replace(AHEAD, pace=Pace(patience=1, cooldown_seconds=0)))
    scene.see(LEVEL)
    scene.query.show(LEVEL)
    scene.loop.step()
    scene.see(SKEWED)  # it was another batch than the one shown: Spark never does that
    assert scene.gateway.calls == 0
    scene.see(SKEWED, 2)  # these were not shown: the past has to do
    assert scene.gateway.calls == 1


def test_a_batch_is_decided_about_once_however_often_it_is_seen() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL)
    scene.query.show(SKEWED)
    for _ in range(5):
        scene.loop.step()
    assert scene.gateway.calls == 1
    assert scene.see(SKEWED).swaps[0].batch == 1


def test_a_swap_that_costs_more_than_the_batch_gains_is_not_made() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL)
    _adverse_batches(scene, 8)  # each swap lasts one batch
    [(_, watch)] = scene.loop._watches.values()
    assert watch._controller is not None
    watch._controller.cost = SwapCost(seconds_per_giver=100.0)
    _adverse_batches(scene, 1)
    assert scene.gateway.calls == 8
    assert "too dear" in scene.record().why


def test_a_look_that_takes_longer_than_its_swap_would_gain_leads_to_none() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL)
    _adverse_batches(scene, 3)
    scene.query.show(_adverse(scene))
    assert scene.query.upcoming is not None
    scene.query.upcoming = replace(scene.query.upcoming, batch_ms=5000)
    scene.loop.step()
    assert scene.gateway.calls == 3
    assert "too dear" in scene.record().why


def test_a_batch_shown_before_the_commit_of_the_last_one_is_heard_of_is_decided_after_it() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL, 2)
    scene.query.show(SKEWED)
    newest = scene.gateway.newest
    scene.gateway.newest = lambda query_id: 0  # type: ignore[method-assign]
    scene.loop.step()
    assert (scene.gateway.calls, scene.gateway.decisions[-1]) == (0, ("query-1", 0))
    scene.gateway.newest = newest  # type: ignore[method-assign]
    scene.loop.step()
    assert (scene.gateway.calls, scene.gateway.decisions[-1]) == (1, ("query-1", 2))


def test_nothing_is_swapped_before_anything_tells_what_a_row_costs() -> None:
    scene = Scene(settings=AHEAD)
    scene.see({}, 2)
    scene.query.show(SKEWED)
    scene.loop.step()
    assert scene.gateway.calls == 0
    assert scene.record().why == "waiting: batch 2 is seen, but not yet what a row costs"


def test_a_query_that_cannot_take_a_table_is_not_looked_at_either() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL)
    assert scene.gateway.looks_ahead
    scene.gateway.fail["publish"] = QueryError("query 1 cannot take a table: never")
    scene.query.show(SKEWED)
    scene.loop.step()
    scene.see(LEVEL)
    assert not scene.gateway.looks_ahead


def test_trouble_with_a_look_ahead_lets_the_planner_go() -> None:
    scene = Scene(settings=AHEAD)
    scene.see(LEVEL)
    scene.gateway.fail["publish"] = CheckpointError("full disk")
    scene.query.show(SKEWED)
    scene.loop.step()
    assert scene.gateway.decisions[-1] == ("query-1", 1)
    assert list(scene.record().errors.values()) == [1]


@pytest.mark.parametrize(
    ("settings", "wait"), [({}, 0), ({"look_ahead": True}, AHEAD_WAIT_MS), ({"plan_wait_ms": 70}, 70)]
)
def test_a_look_ahead_implies_a_wait(settings: dict[str, object], wait: int) -> None:
    assert Settings(**settings).wait_ms == wait  # type: ignore[arg-type]


def test_the_seconds_of_a_row_are_known_even_where_every_batch_is_a_swaps_own() -> None:
    scene = Scene(FakeQuery(), settings=replace(AHEAD, window=2))
    scene.see(LEVEL, 3)
    _adverse_batches(scene, 10)
    [(_, watch)] = scene.loop._watches.values()
    scene.query.show(SKEWED)
    assert scene.query.upcoming is not None
    assert watch._controller is not None
    snapshot = watch._snapshot(watch._controller.table, scene.query.upcoming)
    assert snapshot.loads.sum() / len(snapshot.batches) == pytest.approx(1.0, rel=0.01)  # 100 rows of 10 ms
