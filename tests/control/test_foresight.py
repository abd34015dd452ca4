"""The forecast in the loop: what it changes in plans, what it tells, and that its failures stay with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fake_gateway import FakeQuery
from loop_scene import EAGER, Scene
from skewless import forecast
from skewless.control.costs import snapshot_of
from skewless.control.foresight import Foresight
from skewless.control.memory import batch_record
from skewless.control.observed import ObservedBatch
from skewless.control.settings import Settings
from skewless.errors import ForecastError, SettingError
from skewless.forecast import Forecaster, History, training
from skewless.model.snapshot import Floats
from skewless.model.table import Table
from skewless.report.page import page

TURNS = (
    {0: 400, 2: 100, 4: 400, 6: 100},
    {0: 100, 2: 400, 4: 100, 6: 400},
)  # all at home in partition 0 of 2


def observed(batch: int, rows: dict[int, int], others: int = 100, partitions: int = 2) -> ObservedBatch:
    hashes, counts = np.array(list(rows), dtype=np.int32), np.array(list(rows.values()))
    loads = np.bincount(hashes % partitions, weights=counts, minlength=partitions).astype(int) + others
    return ObservedBatch(batch, 0, 100, loads, loads * 10, loads, hashes, counts)


def by_turns(scene: Scene, batches: int) -> None:
    for batch in range(batches):
        scene.see(TURNS[batch % 2])


def test_costs_are_those_foreseen_and_other_keys_keep_theirs() -> None:
    batch = observed(1, {0: 60, 2: 20, 4: 20})
    foreseen = (np.array([0, 2, 8], dtype=np.int32), np.array([0.1, 0.5, 0.05]))
    found = snapshot_of([batch], Table(2), foreseen=foreseen)
    plain = snapshot_of([batch], Table(2))
    rows, rate = float(batch.rows.sum()), plain.costs[0] / 60
    assert found.key_hashes.tolist() == [0, 2, 4, 8]
    assert np.allclose(found.costs / rate, [0.1 * rows, 0.5 * rows, 20, 0.05 * rows])
    assert np.array_equal(found.remainder_costs, plain.remainder_costs)


def test_a_users_own_cost_is_asked_with_the_rows_foreseen() -> None:
    batch = observed(1, {0: 60, 2: 40})
    foreseen = (np.array([0], dtype=np.int32), np.array([0.5]))
    found = snapshot_of([batch], Table(2), lambda hashes, rows: rows**2, foreseen=foreseen)
    assert found.costs.tolist() == [(0.5 * batch.rows.sum()) ** 2, 1600.0]


def test_the_loop_plans_by_what_is_foreseen_where_keys_take_turns() -> None:
    """Whoever plans by the last batch is wrong every time; who knows the period is right every time."""
    realised = {}
    for name in ("last", "seasonal"):
        scene = Scene(FakeQuery(partitions=2), settings=replace(EAGER, forecast=name, window=1))
        by_turns(scene, 20)
        errors = [
            sum(abs(key.share - (key.foreseen or 0.0)) for key in batch.hot_keys)
            for batch in scene.record().batches[-6:]
        ]
        realised[name] = sum(errors)
    assert realised["seasonal"] == pytest.approx(0.0, abs=1e-9)
    assert realised["last"] > 1.0


@pytest.mark.parametrize("name", ["last", "ewma", "holt", "seasonal", "best"])
def test_status_and_report_tell_what_was_foreseen_with_its_error(name: str) -> None:
    scene = Scene(settings=replace(EAGER, forecast=name))
    by_turns(scene, 8)
    record, status = scene.record(), scene.loop.status()
    assert record.forecast.startswith(f"{name}: ")
    assert "of the rows foreseen at the wrong key" in record.forecast
    assert "% foreseen" in str(status)
    assert "Foreseen and real" in page(status)
    assert not record.errors


def test_without_a_forecast_nothing_is_foreseen_and_nothing_told() -> None:
    scene = Scene()
    by_turns(scene, 5)
    assert scene.record().forecast == ""
    assert all(key.foreseen is None for key in scene.record().batches[-1].hot_keys)
    assert "oreseen" not in page(scene.loop.status())


class Failing(Forecaster):
    """Works until its third window."""

    name = "ewma"

    def shares(self, history: History, horizon: int) -> Floats:
        if history.windows > 2:
            raise ZeroDivisionError("a forecast of a bad day")
        return np.repeat(history.shares[-1:], horizon, axis=0)


def test_a_forecast_that_fails_is_a_word_and_the_loop_plans_from_the_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(forecast._CHEAP, "ewma", Failing)
    scene, plain = Scene(settings=replace(EAGER, forecast="ewma")), Scene()
    by_turns(scene, 8)
    by_turns(plain, 8)
    assert (
        "failed, planned from the past: ZeroDivisionError: a forecast of a bad day" in scene.record().forecast
    )
    assert not scene.record().errors
    assert scene.record().batches[-1].epoch > 0
    assert len(scene.record().batches) == len(plain.record().batches) == 8


def test_a_thousand_batches_without_rows_leave_the_forecast_as_it_was() -> None:
    foresight = Foresight("ewma")
    for batch in range(6):
        foresight.see(observed(batch, {0: 60, 2: 20}))
    before = foresight.foreseen
    for batch in range(1000):
        foresight.see(observed(6 + batch, {0: 0}, others=0))
    assert before is not None
    assert foresight.foreseen is before


@pytest.mark.parametrize("name", ["last", "ewma", "holt", "seasonal", "best"])
def test_keys_that_appear_and_vanish_with_every_batch_are_foreseen_as_shares(name: str) -> None:
    foresight = Foresight(name)
    for batch in range(40):
        foresight.see(observed(batch, {100 * batch + 2 * key: 10 + key for key in range(9)}))
        assert "failed" not in foresight.words
    assert foresight.foreseen is not None
    hashes, shares = foresight.foreseen
    assert len(np.unique(hashes)) == len(hashes)
    assert (shares >= 0).all()
    assert shares.sum() <= 1 + 1e-9


@pytest.mark.parametrize("name", ["last", "ewma", "holt", "seasonal", "best"])
def test_a_single_window_is_foreseen_and_planned_by_only_after_it_was_judged(name: str) -> None:
    foresight = Foresight(name)
    foresight.see(observed(0, {0: 60, 2: 20}))
    assert foresight.words == f"{name}: no forecast could be compared yet"
    assert foresight.foreseen is None
    for batch in range(3):
        foresight.see(observed(1 + batch, {0: 60, 2: 20}))
    assert foresight.foreseen is not None


def test_another_number_of_partitions_starts_the_scores_anew_and_keeps_the_history() -> None:
    foresight = Foresight("best")
    for batch in range(6):
        foresight.see(observed(batch, {0: 60, 2: 20}))
    foresight.see(observed(6, {0: 60, 2: 20}, partitions=4))
    assert foresight.words == "best: no forecast could be compared yet"
    for batch in range(4):
        foresight.see(observed(7 + batch, {0: 60, 2: 20}, partitions=4))
    assert foresight.foreseen is not None


def test_a_record_holds_what_was_foreseen_before_its_batch() -> None:
    foresight = Foresight("last")
    foresight.see(observed(0, {0: 60, 2: 20}))
    second = observed(1, {2: 90, 6: 10})
    told = foresight.told(batch_record(second, 0))
    assert [(key.key_hash, key.foreseen) for key in told.hot_keys] == [(2, pytest.approx(20 / 280)), (6, 0.0)]


@pytest.mark.parametrize("name", ["magic", "", 7])
def test_an_unknown_forecast_is_refused_where_it_is_set(name: str) -> None:
    with pytest.raises(SettingError, match="there is no forecast"):
        Settings(forecast=name)


def test_the_network_without_its_extra_is_refused_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    with pytest.raises(ForecastError, match="pip install"):
        Settings(forecast="gru")
    assert Settings(forecast="best").forecast == "best"
