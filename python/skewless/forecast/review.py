"""Every forecaster on one stream, window by window: how far ahead each sees, and what its tables come to.

Separate from the running scores because a review has the whole stream at hand, looks further ahead than one
window, and knows what would have been best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skewless.forecast.deal import dealt, stretch
from skewless.forecast.forecaster import Forecast, Forecaster
from skewless.forecast.history import KEPT_KEYS, History, Memory
from skewless.forecast.score import Scored, on, wrong
from skewless.model.snapshot import Floats
from skewless.model.table import Int32s

Window = tuple[Int32s, Floats]
"""Key hashes, and the share of the window's rows that each had."""


@dataclass(frozen=True, eq=False)
class Step:
    """One window, and what each forecaster said, when it had come, of those after it."""

    history: History
    forecasts: Mapping[str, Forecast]


@dataclass(frozen=True)
class Outcome:
    """How a forecaster did, so many windows ahead, in the mean over the windows that were judged.

    wrong      the share of the rows that it gave to the wrong key
    hottest    by how much it was off the share of the window's hottest key
    stretch    the max / mean that a table made from the forecast came to
    known      the max / mean of a table made from the window itself
    """

    forecaster: str
    horizon: int
    wrong: float
    hottest: float
    stretch: float
    known: float


def steps_of(
    windows: Iterable[Window], forecasters: Mapping[str, Forecaster], horizon: int, keys: int = KEPT_KEYS
) -> Iterator[Step]:
    """The windows in order, each with the forecasts that it led to."""
    memory = Memory(keys)
    scored = {name: Scored(forecaster) for name, forecaster in forecasters.items()}
    for hashes, shares in windows:
        memory.add(hashes, shares)
        history = memory.history
        for one in scored.values():
            one.learn(history)
        yield Step(history, {name: one.forecast(history, horizon) for name, one in scored.items()})


def outcomes(
    steps: Sequence[Step], horizons: Sequence[int], partitions: int, first: int = 0
) -> list[Outcome]:
    """The forecasts made after window `first` and later, judged as far as there are windows to judge by."""
    found = []
    for horizon in horizons:
        judged = range(first, len(steps) - horizon)
        known = [_known(steps[at + horizon].history, partitions) for at in judged]
        for name in steps[0].forecasts if known else ():
            marks = [
                _marks(steps[at].forecasts[name], horizon, steps[at + horizon].history, partitions)
                for at in judged
            ]
            off, hottest, reached = np.mean(marks, axis=0).tolist()
            found.append(Outcome(name, horizon, off, hottest, reached, float(np.mean(known))))
    return found


def _marks(said: Forecast, horizon: int, real: History, partitions: int) -> tuple[float, float, float]:
    expected, now = said.shares[horizon - 1], real.shares[-1]
    aligned = on(real.key_hashes, said.key_hashes, expected)
    hottest = int(now.argmax())
    return (
        wrong(said.key_hashes, expected, real.key_hashes, now),
        abs(float(aligned[hottest] - now[hottest])),
        stretch(dealt(real.key_hashes, aligned, partitions), now, partitions),
    )


def _known(real: History, partitions: int) -> float:
    now = real.shares[-1]
    return stretch(dealt(real.key_hashes, now, partitions), now, partitions)
