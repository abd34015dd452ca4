"""How a forecaster's forecasts have done so far, on the stream's own past.

Separate from the forecasters, which cannot judge themselves, and from `best.py`, which compares the scores.
Every forecast is judged once, by the window that it was about, when that window has come.
"""

from __future__ import annotations

import numpy as np

from skewless.forecast.deal import dealt, stretch
from skewless.forecast.forecaster import Forecast, Forecaster, forecast
from skewless.forecast.history import History
from skewless.model.snapshot import Floats
from skewless.model.table import Int32s

KEEPS = 0.9  # of the score so far, per window


class Scored:
    """A forecaster and its running scores. `error` is the share of the rows that it gave to the wrong key,
    `stretch` the max / mean that a table made from its forecast came to; None before the first forecast was
    judged. Windows ahead are judged at `step` windows."""

    def __init__(self, forecaster: Forecaster, partitions: int | None = None) -> None:
        self.forecaster, self.partitions = forecaster, partitions
        self.error: float | None = None
        self.stretch: float | None = None
        self.windows = 0
        self._open: Forecast | None = None

    def learn(self, history: History) -> None:
        """The newest window judges the forecast that was made before it."""
        self.forecaster.learn(history)
        if self._open is None:
            return
        expected, now = self._open.shares[0], history.shares[-1]
        self.error = _running(self.error, wrong(self._open.key_hashes, expected, history.key_hashes, now))
        if self.partitions is not None:
            targets = dealt(
                history.key_hashes, on(history.key_hashes, self._open.key_hashes, expected), self.partitions
            )
            self.stretch = _running(self.stretch, stretch(targets, now, self.partitions))
        self.windows += 1
        self._open = None

    def forecast(self, history: History, horizon: int) -> Forecast:
        self._open = forecast(self.forecaster, history, horizon, self.error)
        return self._open


def on(key_hashes: Int32s, others: Int32s, shares: Floats) -> Floats:
    """The shares of `others`, as far as they are among these keys; zero for the rest of these."""
    found = np.zeros(len(key_hashes))
    _, at, where = np.intersect1d(key_hashes, others, assume_unique=True, return_indices=True)
    found[at] = shares[where]
    return found


def wrong(expected_hashes: Int32s, expected: Floats, hashes: Int32s, real: Floats) -> float:
    """The share of the rows that was expected at one key and came at another; keys without a name count as
    one.

    >>> one, two = np.array([4, 7], dtype=np.int32), np.array([7, 9], dtype=np.int32)
    >>> round(wrong(one, np.array([0.5, 0.2]), two, np.array([0.3, 0.1])), 3)
    0.5
    """
    both = np.union1d(expected_hashes, hashes)
    gap = on(both, expected_hashes, expected) - on(both, hashes, real)
    return float(np.abs(gap).sum() + abs(gap.sum())) / 2


def _running(so_far: float | None, now: float) -> float:
    return now if so_far is None else KEEPS * so_far + (1 - KEEPS) * now
