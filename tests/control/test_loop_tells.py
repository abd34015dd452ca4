"""What the loop tells besides its status: the log and the metrics."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fake_gateway import LEVEL, SKEWED, FakeQuery
from loop_scene import EAGER, Scene
from skewless.control.pace import Pace
from skewless.errors import CheckpointError
from skewless.model.table import Table
from skewless.report.records import KEPT_VALUES


def test_a_swap_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, logger="skewless"):
        scene.see(SKEWED, 5)
    [line] = [record.getMessage() for record in caplog.records if record.name == "skewless"]
    assert line.startswith("query clicks: batch 1 went to epoch 1: 2 keys moved (hashes ")
    assert "6 state rows, 2.0 kB, export 120 ms, batch 600 ms (100 ms longer)" in line


def test_every_swap_is_logged_in_one_line_once_its_gain_is_known(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(FakeQuery(values={0: "alice", 2: "bob", 4: "x", 6: "y"}))
    with caplog.at_level(logging.INFO, logger="skewless"):
        scene.see(SKEWED, 2)
        assert not caplog.records  # the swap's own batch says nothing of its gain
        scene.see(SKEWED, 20)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("query clicks: batch 1 went to epoch 1: 2 keys moved (")
    assert '"alice" (hash 0)' in line or '"bob" (hash 2)' in line
    assert line.endswith(
        "imbalance 1.000 before, 0.000 predicted, 0.000 realised; batches take 0.50 of what they would under "
        "the table before; the clock is 0% off"
    )
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
    assert scene.gateway.shown == [("query-1", None, None, 0)]
    scene.see(SKEWED)
    assert scene.gateway.shown[-1] == ("query-1", 1.0, None, 0)
    scene.see(SKEWED, 2)
    assert scene.gateway.shown[-1] == ("query-1", 0.0, 100.0, 0)
    calls = len(scene.gateway.shown)
    scene.see(SKEWED, 5)
    assert len(scene.gateway.shown) == calls
    scene.gateway.fail["observed"] = CheckpointError("gone")
    scene.see(SKEWED)
    assert scene.gateway.shown[-1] == ("query-1", 0.0, 100.0, 1)


def test_metrics_that_cannot_be_told_cost_nothing_and_are_told_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.gateway.fail["show_metrics"] = CheckpointError("no metrics")
    with caplog.at_level(logging.WARNING):
        record = scene.see(SKEWED, 6)
    assert (record.epoch, record.errors) == (1, {})
    assert scene.loop.status().errors == {"CheckpointError: no metrics": 6}
    assert len(caplog.records) == 1
    del scene.gateway.fail["show_metrics"]
    scene.see(SKEWED)
    assert scene.gateway.shown[-1] == ("query-1", 0.0, 100.0, 0)


def test_a_new_run_of_a_query_is_told_anew() -> None:
    scene = Scene()
    scene.see(LEVEL, 3)
    calls = len(scene.gateway.shown)
    scene.query.runId = "run-2"
    scene.loop.step()
    assert len(scene.gateway.shown) == calls + 1


def test_the_first_batch_of_a_run_is_no_measure_of_the_others() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=3, cooldown_seconds=0)))
    scene.query.run(SKEWED)
    scene.query.committed[0] = replace(scene.query.committed[0], batch_ms=90_000)  # it starts Python workers
    scene.loop.step()
    record = scene.see(SKEWED, 6)
    [swap] = record.swaps
    assert (swap.expected_ms, record.gain(swap)) == (500, 2.0)


def test_a_gain_is_against_the_same_rows_under_the_table_before_not_against_other_batches() -> None:
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=2, cooldown_seconds=0)))
    scene.see(LEVEL, 30)
    record = scene.see(SKEWED, 6)
    [swap] = record.swaps
    assert (swap.expected_ms, record.gain(swap)) == pytest.approx((500, 2.0))


def test_a_machine_that_warms_up_is_no_gain() -> None:
    """Each batch is a tenth faster than the one before, and a swap by hand moves a key that has no rows."""
    scene = Scene(settings=replace(EAGER, pace=Pace(patience=99)))
    for number in range(12):
        if number == 6:
            scene.query.publish(Table(2, {99: 0}))
        scene.query.run(LEVEL)
        batch = scene.query.committed.pop()
        faster = 0.9**number
        scene.query.committed.append(
            replace(batch, batch_ms=int(batch.batch_ms * faster), run_ms=(batch.run_ms * faster).astype(int))
        )
        assert scene.loop.step()
    record = scene.record()
    [swap] = record.swaps
    assert record.batches[-1].batch_ms < 0.4 * record.batches[0].batch_ms
    assert record.gain(swap) == pytest.approx(1.0)
    assert "not measurable" in record.gain_words(swap)


def test_a_query_whose_swaps_do_not_pay_is_left_alone_for_ever_longer() -> None:
    """The hot keys change with every swap, which costs more than the batch that it levels."""
    scene = Scene(FakeQuery(swap_ms=2000), settings=replace(EAGER, pace=Pace(patience=1, cooldown_seconds=0)))
    [(_, watch)] = scene.loop._watches.values()
    swaps, reasons = [], set()
    for _ in range(120):
        keys = np.arange(40, dtype=np.int32)
        at = scene.query.table_at(scene.query.next_batch).route(keys)
        rows = dict.fromkeys(keys[at == 0][:2].tolist(), 50)
        record = scene.see(rows)
        if watch._controller is not None:
            watch._controller.cost.scale = 0.01  # it believes that swaps are cheap
        swaps = [swap.batch for swap in record.swaps]
        reasons.add(record.why.partition(" until")[0])
    assert "left alone" in reasons
    rests = [later - earlier for earlier, later in pairwise(swaps)]
    assert len(swaps) < 8
    assert rests[-1] > 30
    assert record.batches[-1].epoch == len(swaps)


def test_a_query_that_cannot_be_balanced_is_named_once_and_stays_in_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(FakeQuery(obstacle="its state lies in one partition. Start it anew."))
    for _ in range(3):
        assert scene.loop.step()
    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert line.getMessage() == (
        "query clicks cannot be balanced: its state lies in one partition. Start it anew."
    )
    why = "cannot be balanced: its state lies in one partition. Start it anew."
    assert scene.record().why == why
    scene.see(SKEWED, 5)
    assert scene.record().why == why
    assert scene.gateway.calls == 0
    assert why in str(scene.loop.status())
    assert len(caplog.records) == 1


def test_an_obstacle_that_has_passed_when_a_batch_is_observed_is_forgotten() -> None:
    scene = Scene(FakeQuery(obstacle="no exchange of it is routed"))
    assert scene.record().why == "cannot be balanced: no exchange of it is routed"
    scene.query.obstacle = None  # a batch has planned one inside foreachBatch
    scene.see(SKEWED, 3)
    assert scene.gateway.calls == 1
    assert scene.record().why.startswith("level")
