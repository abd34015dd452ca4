"""What will come: forecasts of the shares of hot keys, and the one that plans best.

>>> import numpy as np
>>> from skewless.forecast import History, make
>>> history = History.of([4, 7], np.array([[0.5, 0.1], [0.3, 0.2], [0.5, 0.1], [0.3, 0.2]]))
>>> make("seasonal").shares(history, 2)
array([[0.5, 0.1],
       [0.3, 0.2]])
"""

from __future__ import annotations

from pathlib import Path

from skewless.errors import ForecastError, SettingError
from skewless.forecast.best import Best
from skewless.forecast.ewma import Ewma
from skewless.forecast.forecaster import Forecast, Forecaster, forecast
from skewless.forecast.history import History, Memory
from skewless.forecast.holt import Holt
from skewless.forecast.last import Last
from skewless.forecast.online import Gru
from skewless.forecast.score import Scored
from skewless.forecast.seasonal import Seasonal
from skewless.forecast.worker import Trainer, Worker

__all__ = [
    "NAMES",
    "Best",
    "Ewma",
    "Forecast",
    "Forecaster",
    "Gru",
    "History",
    "Holt",
    "Last",
    "Memory",
    "Scored",
    "Seasonal",
    "check",
    "forecast",
    "make",
]

_CHEAP: dict[str, type[Forecaster]] = {"ewma": Ewma, "last": Last, "holt": Holt, "seasonal": Seasonal}
NAMES = (*_CHEAP, "gru", "best")


def check(name: str) -> None:
    """Complains of a name that is none, and of one whose extra is not installed."""
    if not isinstance(name, str) or name not in NAMES:
        raise SettingError(f"there is no forecast {name!r}. Choose one of: none, {', '.join(NAMES)}.")
    if name == "gru":
        from skewless.forecast.training import check_installed

        check_installed()


def make(
    name: str,
    *,
    partitions: int = 8,
    seed: int = 0,
    trainer: Trainer | None = None,
    file: Path | None = None,
) -> Forecaster:
    """The forecaster of this name. Only `best` asks for the partitions that tables are made for, only `gru`
    and
    `best` for a trainer, and for a file that keeps the weights."""
    check(name)
    if name in _CHEAP:
        return _CHEAP[name]()
    if name == "gru":
        return Gru(trainer or Worker(), seed=seed, file=file)
    cheap = [kind() for kind in _CHEAP.values()]
    try:
        gru = Gru(trainer or Worker(), seed=seed, file=file)
    except ForecastError as error:
        best = Best(cheap, partitions)
        best.left_out["gru"] = str(error)
        return best
    return Best([*cheap, gru], partitions)
