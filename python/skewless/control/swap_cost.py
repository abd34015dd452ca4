"""What a swap costs, in seconds: a guess from bytes and giving partitions, corrected by every swap that was
measured.

Separate from the controller because it is the one thing that the controller learns. Two parts, because a
migration has two: bytes to move, and a scan of each partition that gives anything away.
"""

from __future__ import annotations

from dataclasses import dataclass

from skewless.model.plan import Plan


@dataclass
class SwapCost:
    """Seconds of a swap = scale x (seconds_per_giver x giving partitions + seconds_per_byte x bytes); `scale`
    is learned.

    >>> from skewless.model.plan import Moves
    >>> from skewless.model.table import Table
    >>> plan = Plan(Table(2, {7: 0}), Moves.of([7], [1], [0], [1e6]), 0.5, 0.0, seconds=0.0, met=True)
    >>> cost = SwapCost(seconds_per_giver=1.0, seconds_per_byte=1e-6)
    >>> cost.guess(plan)
    2.0
    >>> cost.learn(plan, seconds=6.0)         # it took three times as long: half of the surprise is believed
    >>> cost.guess(plan)
    4.0
    """

    seconds_per_giver: float = 0.2
    seconds_per_byte: float = 1e-8
    scale: float = 1.0
    weight: float = 0.5

    def guess(self, plan: Plan) -> float:
        return self.scale * self._model(plan)

    def learn(self, plan: Plan, seconds: float) -> None:
        """Takes in how much longer than an ordinary batch the swap's batch took."""
        model = self._model(plan)
        if model > 0 and seconds >= 0:
            self.scale += self.weight * (seconds / model - self.scale)

    def _model(self, plan: Plan) -> float:
        return self.seconds_per_giver * len(plan.giving_partitions) + self.seconds_per_byte * plan.bytes_moved
