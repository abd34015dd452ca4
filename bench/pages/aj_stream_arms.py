"""The cases and the arms of Aj-Stream's page: who meets which stream, and how.

Separate from the page because what is compared is set up here, and told there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from skewless import Pace
from skewless.control.foresight import Foresight
from skewless.control.settings import Settings
from skewless.forecast.history import Memory
from skewless.forecast.weights import save
from skewless.forecast.worker import Here
from skewless.model.snapshot import Floats
from skewless.model.table import Int32s
from skewless.simulate.compiled import Int64s
from skewless.simulate.joins.course import Course, Fixed, Routing, Watched, drawn, run
from skewless.simulate.joins.joiners import Joiners, Minute, Work
from skewless.simulate.streams import keyhash

RATE, KEYS, HALF, LEVEL, GROUP, PANES = 1000.0, 300, 12, 0.7, 3, 2
PACE = Pace(patience=1, cooldown_seconds=0)


@dataclass(frozen=True)
class Case:
    """One stream with the joiners that meet it."""

    weights: Floats
    rates: Sequence[float]
    work: Work
    half: int = HALF
    folder: Path | None = None  # with weights of a network that was trained on the minutes before

    @property
    def keys(self) -> int:
        return int(self.weights.shape[1])

    @property
    def hashes(self) -> Int32s:
        return keyhash.of_int64s(np.arange(self.keys))


Arm = Callable[[Case], Routing]


def _loop(splits: str, forecast: str = "none", scaling: bool = False) -> Arm:
    def made(case: Case) -> Routing:
        folder = None if forecast != "gru" else str(case.folder)
        settings = Settings(splits=splits, forecast=forecast, forecast_folder=folder, pace=PACE)
        return Watched(case.hashes, case.half, settings, scaling=scaling, quiet=PANES)

    return made


class Knowing(Foresight):
    """Says the shares of the minutes to come, as its routing lets it know them."""

    def __init__(self, hashes: Int32s) -> None:
        super().__init__()
        self._hashes = hashes

    def see(self, batch: object) -> None:
        pass

    def know(self, weights: Floats) -> None:
        shares = weights / weights.sum(axis=1, keepdims=True)
        self._foreseen = (self._hashes, shares.mean(axis=0)) if len(shares) else None


class Known(Watched):
    """Aj-Stream's splits by what will really come: the three minutes after the newest tuple."""

    def __init__(self, case: Case) -> None:
        self._weights, self._knowing = case.weights, [Knowing(case.hashes) for _ in range(2)]
        settings = Settings(splits="aj_stream", pace=PACE)
        super().__init__(case.hashes, case.half, settings, foresights=self._knowing, quiet=PANES)

    def see(self, minute: Minute, counts: Int64s, joiners: Joiners) -> None:
        for one in self._knowing:
            one.know(self._weights[joiners.minute + 1 : joiners.minute + 4])
        super().see(minute, counts, joiners)


FIXED: dict[str, Arm] = {
    "plain hash": lambda case: Fixed.hashing(case.hashes, case.half),
    "BiStream": lambda case: Fixed.bistream(case.hashes, case.half),
    "ContRand": lambda case: Fixed.contrand(case.hashes, case.half, GROUP),
}
SWEPT = {
    **FIXED,
    "Aj-Stream": _loop("aj_stream", "ewma", scaling=True),
    "Aj-Stream, no scaling": _loop("aj_stream", "ewma"),
    "Skewless auto": _loop("auto"),
}
TIMED = {
    **FIXED,
    "Aj-Stream": _loop("aj_stream", "gru", scaling=True),
    "Aj-Stream, no scaling": _loop("aj_stream", "gru"),
    "Aj-Stream's splits, no forecast": _loop("aj_stream"),
    "Aj-Stream's splits, known ahead": Known,
    "Skewless auto": _loop("auto"),
}


def work_of(kind: str, weights: Floats) -> Work:
    """The costs that make level work so heavy, for 24 instances."""
    busy = LEVEL * 2 * HALF
    shares = weights / weights.sum(axis=1, keepdims=True)
    pairs = 0.5 * RATE**2 * 60 * PANES * float((shares**2).sum(axis=1).mean())
    store, look, match = (0.9, 0.1, 0.0) if kind == "rows" else (0.05, 0.05, 0.9)
    return Work(store * busy / RATE, look * busy / RATE, match * busy / pairs, 0.0002)


def network_of(past: Floats, folder: Path, seed: int) -> Path:
    """A network of the minutes before, as a file that the loop finds."""
    memory, trainer, generator = Memory(), Here(), np.random.default_rng(seed)
    hashes = keyhash.of_int64s(np.arange(past.shape[1]))
    for row in past:
        tuples = round(60 * RATE)
        memory.add(hashes, generator.multinomial(tuples, row / row.sum()) / tuples)
    trainer.ask(memory.history, seed)
    weights = trainer.collect()
    assert weights is not None
    (folder / str(seed)).mkdir()
    save(folder / str(seed) / "half.gru", weights)
    return folder / str(seed)


def all_arms(
    case: Case, arms: Mapping[str, Arm], seeds: Mapping[int, Path | None]
) -> dict[str, list[Course]]:
    """Every arm on the same tuples, seed by seed."""
    found: dict[str, list[Course]] = {name: [] for name in arms}
    for seed, folder in seeds.items():
        tuples = drawn(case.weights, case.rates, seed)
        ours = replace(case, folder=folder)
        for name, arm in arms.items():
            found[name].append(run(tuples, case.keys, arm(ours), case.work, len(case.weights), PANES))
    return found
