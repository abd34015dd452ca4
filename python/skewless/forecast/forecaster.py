"""The one interface of all forecasts: a history of key shares in, shares of the next windows out.

Separate from the forecasters because they do not know each other. What a forecaster returns is checked here,
so that nothing that is not a share ever leaves this room.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from skewless.errors import ForecastError, SettingError
from skewless.forecast.history import History
from skewless.model.snapshot import Floats
from skewless.model.table import Int32s

MOST_WINDOWS = 1000  # that a forecast looks ahead


class Forecaster(ABC):
    """Called from one thread, once per window: `learn`, then `shares`. `why` is what a person should know."""

    name = ""
    why = ""

    @abstractmethod
    def shares(self, history: History, horizon: int) -> Floats:
        """The shares of the history's keys in the next windows: one row per window."""

    def learn(self, history: History) -> None:  # noqa: B027
        """The newest window of the history is new. Most forecasters have nothing to learn; none waits
        here."""

    def close(self) -> None:  # noqa: B027
        """Nothing more will be asked."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """Shares of the next windows, one row per window.

    `error` is the forecaster's own: the share of the rows that its forecasts of one window ahead gave to the
    wrong key so far; None if none could be compared yet."""

    key_hashes: Int32s
    shares: Floats
    by: str
    error: float | None = None

    def mean(self, windows: int) -> Floats:
        """The mean shares of the first so many windows."""
        return np.asarray(self.shares[:windows].mean(axis=0))


def forecast(
    forecaster: Forecaster, history: History, horizon: int = 1, error: float | None = None
) -> Forecast:
    """What the forecaster says of the next `horizon` windows, checked.

    >>> from skewless.forecast.last import Last
    >>> history = History.of([4, 7], [[0.5, 0.1], [0.3, 0.2]])
    >>> forecast(Last(), history, horizon=2).shares
    array([[0.3, 0.2],
           [0.3, 0.2]])
    """
    if isinstance(horizon, bool) or not isinstance(horizon, int) or not 1 <= horizon <= MOST_WINDOWS:
        raise SettingError(
            f"horizon is {horizon!r}. Give a whole number of windows from 1 to {MOST_WINDOWS}."
        )
    if not len(history.shares):
        raise ForecastError("there is no window to forecast from. Ask again after the first batch with rows.")
    found = np.asarray(forecaster.shares(history, horizon), dtype=np.float64)
    expected = (horizon, len(history.key_hashes))
    if found.shape != expected or not np.isfinite(found).all():
        what = (
            f"shape {found.shape}, not {expected}"
            if found.shape != expected
            else "numbers that are not finite"
        )
        raise ForecastError(
            f"the forecast {forecaster.name!r} has {what}. Use another forecast, and report this."
        )
    found = np.clip(found, 0.0, 1.0)
    found /= np.maximum(1.0, found.sum(axis=1, keepdims=True))
    return Forecast(history.key_hashes, found, forecaster.name, error)
