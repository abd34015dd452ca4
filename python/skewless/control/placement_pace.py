"""How eager the loop is to place partitions anew: what a user may set of it.

Separate from `pace.py`, which is about keys: here a move costs a load of the state from the checkpoint, and
nothing is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from skewless.errors import SettingError


@dataclass(frozen=True)
class PlacementPace:
    """How eager the loop is to place partitions anew.

    max_distance      load distance, as a share of the mean load, up to which executors count as level
    patience          batches in a row above it before the loop plans
    cooldown_seconds  rest of a partition after its move
    plan_share        share of all state that one plan may move; one partition always may
    plan_bytes        bytes of state that one plan may move
    horizon_batches   batches within which a plan must have paid for the loading of the state
    min_gain          share of the tasks' time that a plan must save

    State without a recent snapshot counts several times in both limits: its changes are replayed.

    >>> PlacementPace(patience=0)
    Traceback (most recent call last):
    skewless.errors.SettingError: patience is 0. Give at least 1.
    """

    max_distance: float = 0.1
    patience: int = 3
    cooldown_seconds: float = 60.0
    plan_share: float = 0.25
    plan_bytes: float = math.inf
    horizon_batches: int = 50
    min_gain: float = 0.05

    def __post_init__(self) -> None:
        for name, least in (
            ("max_distance", 0),
            ("patience", 1),
            ("cooldown_seconds", 0),
            ("plan_share", 0),
            ("plan_bytes", 0),
            ("horizon_batches", 1),
            ("min_gain", 0),
        ):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not value >= least:
                raise SettingError(f"{name} is {value!r}. Give at least {least}.")
        if self.plan_share > 1:
            raise SettingError(f"plan_share is {self.plan_share}. Give a share, 1 at most.")
