"""How far ahead the hot keys of a stream can be foreseen, and by what, for `skewless advise --forecast`.

Separate from the advice, which is about schemes: a forecast serves whichever is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from skewless.errors import ForecastError, SettingError
from skewless.forecast import Ewma, Forecaster, Gru, Holt, Last, Seasonal
from skewless.forecast.review import Outcome, Window, outcomes, steps_of
from skewless.forecast.training import LEAST_WINDOWS
from skewless.forecast.worker import Here
from skewless.simulate.streams.stream import Stream

WINDOWS, HORIZONS, KEYS = 120, (1, 2, 5, 10), 500
LEAST_ROWS = 100  # of a window
NEAR = 1.1  # times what knowing the window would give: then it counts as foreseen


@dataclass(frozen=True)
class Outlook:
    """What each forecaster came to at each horizon. `horizon` is the farthest at which a table made from a
    forecast, `by`, comes near what the window itself would give; 0 if there is none."""

    stream: str
    workers: int
    window_rows: int
    windows: int
    outcomes: tuple[Outcome, ...]
    horizon: int
    by: str
    words: tuple[str, ...]


def outlook(stream: Stream, workers: int, windows: int = WINDOWS, gru: bool = True) -> Outlook:
    """Cuts the stream into windows of equal rows and reviews every forecast; the network only where its extra
    is installed. The first windows are for learning and are not judged."""
    cut, rows = windows_of(stream, windows)
    forecasters, missing = _forecasters(gru)
    steps = list(steps_of(cut, forecasters, max(HORIZONS), KEYS))
    found = tuple(outcomes(steps, HORIZONS, workers, first=LEAST_WINDOWS))
    best = [min((one for one in found if one.horizon == h), key=lambda one: one.stretch) for h in HORIZONS]
    near = list(takewhile(lambda one: one.stretch <= NEAR * one.known, best))
    horizon = near[-1].horizon if near else 0
    by = _most_level([one for one in found if one.horizon <= horizon])
    words = (*_words(best[0], horizon, by, rows), *missing)
    return Outlook(
        stream.label,
        workers,
        rows,
        len(cut),
        found,
        horizon,
        by,
        words,
    )


def windows_of(stream: Stream, windows: int) -> tuple[list[Window], int]:
    """The stream in so many windows of equal rows, and how many rows that is."""
    keys = np.concatenate([np.zeros(0, dtype=np.int32), *stream.chunks()])
    rows = len(keys) // windows
    if rows < LEAST_ROWS:
        raise SettingError(
            f"{len(keys)} rows are too few to judge forecasts: {windows} windows of {LEAST_ROWS} rows are "
            "needed. Give a longer stream."
        )
    hashes, where = np.unique(stream.hashes, return_inverse=True)
    counted = [
        np.bincount(where[keys[first : first + rows]], minlength=len(hashes)) / rows
        for first in range(0, rows * windows, rows)
    ]
    seen = [np.flatnonzero(shares) for shares in counted]
    return [(hashes[at], shares[at]) for at, shares in zip(seen, counted, strict=True)], rows


def _forecasters(gru: bool) -> tuple[dict[str, Forecaster], list[str]]:
    found: dict[str, Forecaster] = {"last": Last(), "ewma": Ewma(), "holt": Holt(), "seasonal": Seasonal()}
    missing = []
    if gru:
        try:
            found["gru"] = Gru(Here())
        except ForecastError as error:
            missing = [str(error)]
    return found, missing


def _most_level(outcomes: list[Outcome]) -> str:
    """The forecaster whose tables come out most level over all these horizons; none if there are none."""
    sums: dict[str, float] = {}
    for one in outcomes:
        sums[one.forecaster] = sums.get(one.forecaster, 0.0) + one.stretch
    return min(sums, key=lambda name: sums[name]) if sums else ""


def _words(at_once: Outcome, horizon: int, by: str, rows: int) -> list[str]:
    level = (
        f"One window of {rows:,} rows ahead, a table made from {at_once.forecaster} comes to "
        f"{at_once.stretch:.2f} times a level batch; one made from the window itself to {at_once.known:.2f}."
    )
    if not horizon:
        return [
            level,
            "The hot keys cannot be foreseen well enough to plan by; look_ahead counts them instead.",
        ]
    return [
        level,
        f"The hot keys can be foreseen {horizon} windows ahead, by {by}: "
        f'skewless.balance(spark, forecast="{by}").',
    ]
