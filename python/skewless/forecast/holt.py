"""Holt's linear trend, damped: a level and a slope per key, for shares that rise or fall for a while.

C. C. Holt: "Forecasting seasonals and trends by exponentially weighted moving averages" (1957), with the
damping of Gardner and McKenzie: "Forecasting trends in time series" (1985). Both rates are chosen as in
`ewma.py`.
"""

from __future__ import annotations

import numpy as np

from skewless.forecast.ewma import RECENT
from skewless.forecast.forecaster import Forecaster
from skewless.forecast.history import History
from skewless.model.snapshot import Floats

LEVELS, SLOPES = (0.2, 0.5, 0.8), (0.0, 0.1, 0.4)  # rates
DAMPING = 0.9


class Holt(Forecaster):
    """
    >>> Holt().shares(History.of([4], [[0.1], [0.2], [0.3], [0.4], [0.5]]), 2).round(2)
    array([[0.56],
           [0.63]])
    """

    name = "holt"

    def shares(self, history: History, horizon: int) -> Floats:
        level, slope = _fitted(history.shares[-RECENT:])
        steps = np.cumsum(DAMPING ** np.arange(1, horizon + 1))
        return np.maximum(0.0, level[None, :] + steps[:, None] * slope[None, :])


def _fitted(windows: Floats) -> tuple[Floats, Floats]:
    """Level and slope of each key, by the pair of rates that erred least."""
    fast, trend = (grid.ravel()[:, None] for grid in np.meshgrid(LEVELS, SLOPES, indexing="ij"))
    levels = np.repeat(windows[:1], len(fast), axis=0)
    slopes, errors = np.zeros_like(levels), np.zeros(len(fast))
    for window in windows[1:]:
        expected = levels + DAMPING * slopes
        errors += np.abs(window - expected).sum(axis=1)
        before, levels = levels, expected + fast * (window - expected)
        slopes = DAMPING * slopes + trend * (levels - before - DAMPING * slopes)
    best = int(errors.argmin())
    return levels[best], slopes[best]
