"""Seasonal naive: the next window is like the windows one, two and three periods before it.

The period is found in the history: the distance at which windows are most alike, if they are more alike than
neighbours are. Without a period the last value stands.
"""

from __future__ import annotations

import numpy as np

from skewless.forecast.forecaster import Forecaster
from skewless.forecast.history import History
from skewless.model.snapshot import Floats

SEASONS = 3  # that are averaged
LOOKED_AT = 32  # hottest keys, to find the period by
BETTER = 0.9  # of the neighbours' difference, at most
ALIKE = 1.15  # times the least difference: noise


class Seasonal(Forecaster):
    """
    >>> shares = [[[0.1], [0.2], [0.6]][window % 3] for window in range(12)]
    >>> Seasonal().shares(History.of([4], shares), 3).round(3).ravel()
    array([0.1, 0.2, 0.6])
    """

    name = "seasonal"

    def shares(self, history: History, horizon: int) -> Floats:
        windows = history.shares
        period = period_of(windows)
        self.why = f"a period of {period} windows" if period > 1 else "no period found"
        return np.stack([_at(windows, period, step % period) for step in range(horizon)])


def _at(windows: Floats, period: int, step: int) -> Floats:
    """The mean of the windows that lie whole periods before this step into the future."""
    seasons = min(SEASONS if period > 1 else 1, len(windows) // period)
    newest = len(windows) - period + step
    return np.asarray(windows[[newest - season * period for season in range(seasons)]].mean(axis=0))


def period_of(windows: Floats) -> int:
    """The period in windows, the shortest of those that fit about as well; 1 if there is none. It must have
    come twice."""
    if len(windows) < 4 or not windows.any():
        return 1
    hottest = np.argsort(-windows.mean(axis=0), kind="stable")[:LOOKED_AT]
    seen = windows[:, hottest]
    gaps = np.array([np.abs(seen[lag:] - seen[:-lag]).mean() for lag in range(1, len(seen) // 2 + 1)])
    best = int(np.argmax(gaps <= ALIKE * gaps.min()))
    return best + 1 if gaps[best] < BETTER * gaps[0] else 1
