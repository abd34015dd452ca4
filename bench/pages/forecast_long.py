"""The page of forecasts with more to learn from: the network after a whole day of windows."""

from __future__ import annotations

from pathlib import Path

from pages.forecast import HORIZONS, KEYS, WORKERS, Shared, drawn, generated
from pages.page import Page
from skewless.forecast import Ewma, Forecaster, Gru, History, Holt, Last, Seasonal
from skewless.forecast.history import KEPT_WINDOWS
from skewless.forecast.review import Outcome, outcomes, steps_of

WINDOWS, ASIDE = KEPT_WINDOWS + 100, float("inf")


class Late(Shared):
    """Trains only when the memory is full."""

    def ask(self, history: History, seed: int) -> bool:
        return history.windows >= KEPT_WINDOWS and super().ask(history, seed)


def build(page: Page, data: Path | None) -> None:
    page.text(
        "# Forecasts: the network with more to learn from",
        f"As the page of [forecasts](forecast.md), on the generated streams alone, each {WINDOWS} windows "
        f"long. "
        f"The network is trained once, on {KEPT_WINDOWS} windows, which is all that the loop keeps, and "
        f"judged on "
        "the windows after. Figures: the share of the rows foreseen at the wrong key.",
    )
    found: dict[str, dict[tuple[str, int], Outcome]] = {}
    for name, weights in generated(WINDOWS):
        if "another law" in name:
            continue  # its law changes long before the training
        every: dict[str, Forecaster] = {
            "last": Last(), "ewma": Ewma(), "holt": Holt(), "seasonal": Seasonal(),
            "network": Gru(Late(), aside=ASIDE),
        }  # fmt: skip
        steps = list(steps_of(drawn(weights), every, max(HORIZONS), KEYS))
        marks = outcomes(steps, HORIZONS, WORKERS, KEPT_WINDOWS)
        found[name] = {(one.forecaster, one.horizon): one for one in marks}
    names = ["last", "ewma", "holt", "seasonal", "network"]
    for horizon in HORIZONS:
        page.text(f"## {horizon} {'window' if horizon == 1 else 'windows'} ahead")
        page.table(
            ["stream", *names],
            [
                [stream, *(f"{one[name, horizon].wrong:.1%}" for name in names)]
                for stream, one in found.items()
            ],
        )
    page.text(
        "The network is ahead of every cheap forecast on "
        + "; ".join(f"{_wins(found, names, h)}, {h} ahead" for h in HORIZONS)
        + "."
    )


def _wins(found: dict[str, dict[tuple[str, int], Outcome]], names: list[str], horizon: int) -> str:
    """The streams where the last of the names errs least."""
    ahead = [
        stream
        for stream, one in found.items()
        if min(names, key=lambda name: one[name, horizon].wrong) == names[-1]
    ]
    return ", ".join(f"`{stream}`" for stream in ahead) or "none"
