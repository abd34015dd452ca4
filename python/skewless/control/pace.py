"""How eager the controller is: what a user may set of it.

Separate from the controller because it is a value, and part of the public interface.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real

from skewless.errors import SettingError


@dataclass(frozen=True)
class Pace:
    """How eager the controller is.

    patience            snapshots in a row above max_imbalance before it plans
    calm                snapshots in a row within max_imbalance before it takes entries back
    aim                 plans aim at this share of max_imbalance, so that a little drift does not trigger the
                        next one
    cooldown_seconds    rest after a swap
    horizon_batches     batches over which a swap must have paid for itself; fewer where the swaps before it
                        did not last as long
    swap_bytes          state bytes that one swap may move
    hour_bytes          state bytes that the swaps of any hour may move together
    seconds_per_cost    seconds in one unit of a snapshot's cost
    """

    patience: int = 2
    calm: int = 10
    aim: float = 0.5
    cooldown_seconds: float = 30.0
    horizon_batches: int = 50
    swap_bytes: float = math.inf
    hour_bytes: float = math.inf
    seconds_per_cost: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise SettingError(f"{field.name} is {value!r}. Give a number, without quotes.")
        for name, least in (
            ("patience", 1),
            ("calm", 1),
            ("horizon_batches", 1),
            ("aim", 0),
            ("cooldown_seconds", 0),
        ):
            if not getattr(self, name) >= least:
                raise SettingError(f"{name} is {getattr(self, name)}. Give at least {least}.")
        for name in ("swap_bytes", "hour_bytes", "seconds_per_cost"):
            if not getattr(self, name) >= 0:
                raise SettingError(f"{name} is {getattr(self, name)}. Give at least 0.")
        if self.aim > 1:
            raise SettingError(f"aim is {self.aim}. Give at most 1: a plan cannot aim above max_imbalance.")
