"""One battery over every forecaster: whatever the history, it says shares, the same ones each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from skewless.errors import ForecastError, SettingError
from skewless.forecast import (
    NAMES,
    Best,
    Ewma,
    Forecaster,
    History,
    Holt,
    Last,
    Seasonal,
    check,
    forecast,
    make,
)
from skewless.model.snapshot import Floats

CHEAP = [Last(), Ewma(), Holt(), Seasonal()]
HISTORIES = st.integers(0, 6).flatmap(
    lambda keys: arrays.arrays(
        float, st.tuples(st.integers(1, 30), st.just(keys)), elements=st.floats(0, 1 / max(keys, 1))
    )
)


def history_of(shares: Floats) -> History:
    return History.of(np.arange(np.shape(shares)[1]), shares)


@pytest.mark.parametrize("forecaster", [*CHEAP, Best(CHEAP, 4)], ids=lambda one: one.name)
@given(HISTORIES, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_whatever_the_history_a_forecast_holds_shares(
    forecaster: Forecaster, shares: Floats, horizon: int
) -> None:
    history = history_of(shares)
    before = history.shares.copy()
    found = forecast(forecaster, history, horizon).shares
    assert found.shape == (horizon, shares.shape[1])
    assert (found >= 0).all()
    assert (found.sum(axis=1) <= 1 + 1e-9).all()
    assert np.array_equal(found, forecast(forecaster, history, horizon).shares)
    assert np.array_equal(history.shares, before)


@pytest.mark.parametrize("forecaster", CHEAP, ids=lambda one: one.name)
@pytest.mark.parametrize("level", [0.0, 0.2])
def test_a_constant_series_is_foreseen_exactly(forecaster: Forecaster, level: float) -> None:
    history = history_of(np.full((20, 3), level))
    assert np.allclose(forecast(forecaster, history, 5).shares, level)


@pytest.mark.parametrize("forecaster", CHEAP, ids=lambda one: one.name)
def test_one_window_is_all_there_is_to_say(forecaster: Forecaster) -> None:
    assert np.allclose(forecast(forecaster, history_of(np.array([[0.4, 0.1]])), 2).shares, [[0.4, 0.1]] * 2)


def test_the_ewma_is_the_plain_recursion_at_the_rate_that_erred_least() -> None:
    shares = np.random.default_rng(1).dirichlet(np.ones(4), 30)[:, :3]
    by_rate = {}
    for rate in (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0):
        level, error = shares[0].copy(), 0.0
        for window in shares[1:]:
            error += float(np.abs(window - level).sum())
            level = (1 - rate) * level + rate * window
        by_rate[error] = level
    assert np.allclose(Ewma().shares(history_of(shares), 1)[0], by_rate[min(by_rate)])


def test_holt_follows_a_line_that_the_ewma_lags_behind() -> None:
    shares = np.linspace(0.1, 0.4, 16)[:, None]
    due = 0.42
    holt, ewma = (forecast(one, history_of(shares)).shares[0, 0] for one in (Holt(), Ewma()))
    assert abs(holt - due) < 0.5 * abs(ewma - due)


def test_the_seasonal_forecast_finds_a_period_in_noise() -> None:
    generator = np.random.default_rng(2)
    wave = 0.3 + 0.2 * np.sin(2 * np.pi * np.arange(72) / 12)
    history = history_of(np.clip(wave + generator.normal(0, 0.01, 72), 0, 1)[:60, None])
    seasonal = Seasonal()
    assert np.abs(forecast(seasonal, history, 12).shares[:, 0] - wave[60:]).max() < 0.03
    assert seasonal.why == "a period of 12 windows"


def test_best_believes_the_forecast_whose_tables_come_out_level() -> None:
    """Four windows that come again and again: who knows the period knows the next window."""
    windows = np.tile(np.random.default_rng(3).dirichlet(np.full(9, 0.5), 4)[:, :8], (6, 1))
    best = Best(CHEAP, 4)
    for seen in range(1, len(windows) + 1):
        history = history_of(windows[:seen])
        best.learn(history)
        best.shares(history, 1)
    assert best.chosen.forecaster.name == "seasonal"
    scores = {scored.forecaster.name: scored.stretch for scored in best.scored}
    assert min(scores.values()) == scores["seasonal"]


class Broken(Forecaster):
    name = "broken"

    def shares(self, history: History, horizon: int) -> Floats:
        return np.full((horizon, len(history.key_hashes)), np.nan)


def test_a_forecast_that_is_no_number_is_a_typed_error_and_best_goes_on_without_it() -> None:
    history = history_of(np.array([[0.5, 0.2]]))
    with pytest.raises(ForecastError, match="not finite"):
        forecast(Broken(), history)
    best = Best([Broken(), Last()], 2)
    assert np.allclose(best.shares(history, 1), [[0.5, 0.2]])
    best.learn(history)
    assert "broken is left out" in best.why


def test_without_a_window_there_is_no_forecast() -> None:
    with pytest.raises(ForecastError, match="no window to forecast from"):
        forecast(Last(), history_of(np.zeros((0, 2))))


@pytest.mark.parametrize("horizon", [0, -1, 2.5, True, 10**9])
def test_a_horizon_that_is_no_number_of_windows_is_refused(horizon: int) -> None:
    with pytest.raises(SettingError, match="horizon is"):
        forecast(Last(), history_of(np.array([[0.5]])), horizon)


@pytest.mark.parametrize("name", ["magic", "", None, 3])
def test_a_name_that_is_none_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(SettingError, match="Choose one of: none, ewma, last"):
        check(name)


def test_every_name_can_be_made() -> None:
    assert [make(name).name for name in NAMES] == list(NAMES)
