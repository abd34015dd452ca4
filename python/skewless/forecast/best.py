"""The forecast that would have planned best: all of them run beside each other, and one is believed.

What counts is not the error but what comes of it. Each forecast makes a table for the window to come, and
when the window has come the table is judged by its balance (`deal.py`). Forecasts that plan equally well are
told apart by their error, and after that the cheaper one wins.
"""

from __future__ import annotations

from collections.abc import Sequence

from skewless.forecast.forecaster import Forecast, Forecaster
from skewless.forecast.history import History
from skewless.forecast.score import Scored
from skewless.model.snapshot import Floats

ALIKE = 0.002  # two balances that differ by less are the same
FAIR = 3  # windows that a forecast must have been judged by


class Best(Forecaster):
    """Of these forecasters, the cheapest first. One that fails is left out from then on, and `why` says
    so."""

    name = "best"

    def __init__(self, forecasters: Sequence[Forecaster], partitions: int) -> None:
        self.scored = [Scored(forecaster, partitions) for forecaster in forecasters]
        self.left_out: dict[str, str] = {}
        self.chosen = self.scored[0]

    def learn(self, history: History) -> None:
        for scored in list(self.scored):
            try:
                scored.learn(history)
            except Exception as error:
                self._leave_out(scored, error)
        self.chosen = _best(self.scored)
        self.why = "; ".join(
            [
                f"{self.chosen.forecaster.name} has planned best so far",
                *(f"{name} is left out: {words}" for name, words in self.left_out.items()),
            ]
        )

    def shares(self, history: History, horizon: int) -> Floats:
        """What the chosen one says. The others make their forecasts, too, to be judged."""
        made: dict[Scored, Forecast] = {}
        for scored in list(self.scored):
            try:
                made[scored] = scored.forecast(history, horizon)
            except Exception as error:
                self._leave_out(scored, error)
        found = made.get(self.chosen) or next(iter(made.values()))
        return found.shares

    def close(self) -> None:
        for scored in self.scored:
            scored.forecaster.close()

    def _leave_out(self, scored: Scored, error: Exception) -> None:
        """The last one may fail as it likes: then there is no forecast."""
        if len(self.scored) == 1:
            raise error
        self.left_out[scored.forecaster.name] = str(error)
        self.scored.remove(scored)
        scored.forecaster.close()


def _best(scored: Sequence[Scored]) -> Scored:
    """The first of those that plan best; until they have been judged, the first."""
    judged = [one for one in scored if one.windows >= FAIR]
    if not judged:
        return scored[0]
    level = min(one.stretch or 1.0 for one in judged)
    alike = [one for one in judged if (one.stretch or 1.0) <= level + ALIKE]
    return min(alike, key=lambda one: one.error or 0.0)
