"""The last value: the next windows are like the last one. What every other forecast must beat."""

from __future__ import annotations

import numpy as np

from skewless.forecast.forecaster import Forecaster
from skewless.forecast.history import History
from skewless.model.snapshot import Floats


class Last(Forecaster):
    """
    >>> Last().shares(History.of([4], [[0.5], [0.3]]), 2)
    array([[0.3],
           [0.3]])
    """

    name = "last"

    def shares(self, history: History, horizon: int) -> Floats:
        return np.repeat(history.shares[-1:], horizon, axis=0)
