"""The exponentially weighted mean of the past: the cheap forecast that every dear one is measured by.

How fast it forgets is chosen anew for each forecast: the rate that would have erred least on the windows
before. One rate serves all keys.
"""

from __future__ import annotations

import numpy as np

from skewless.forecast.forecaster import Forecaster
from skewless.forecast.history import History
from skewless.model.snapshot import Floats

RATES = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0])  # what the newest window counts
RECENT = 64  # windows that are looked at


class Ewma(Forecaster):
    """
    >>> Ewma().shares(History.of([4], [[0.5], [0.3], [0.5], [0.3]]), 1).round(2)
    array([[0.48]])
    """

    name = "ewma"

    def shares(self, history: History, horizon: int) -> Floats:
        windows = history.shares[-RECENT:]
        levels = np.repeat(windows[:1], len(RATES), axis=0)
        errors = np.zeros(len(RATES))
        for window in windows[1:]:
            gaps = window - levels
            errors += np.abs(gaps).sum(axis=1)
            levels += RATES[:, None] * gaps
        return np.repeat(levels[errors.argmin()][None, :], horizon, axis=0)
