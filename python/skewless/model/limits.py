"""What a plan must keep to, and the papers' parameters under names that people can read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skewless.errors import SettingError


@dataclass(frozen=True)
class Limits:
    """The bounds of a plan. The paper's symbol stands behind each.

    max_imbalance   heaviest partition above the mean, as a share of the mean (theta_max)
    max_entries     entries of the next table, splits included (A_max)
    max_bytes       state bytes that one plan may move
    beta            weight of cost against state in the priority cost^beta / state (beta)
    sigma           Readj looks at keys of at least this share of the mean load (sigma)
    degree          step of the compact form's linear part, a power of two (R)

    >>> Limits(max_imbalance=-1)
    Traceback (most recent call last):
    skewless.errors.SettingError: max_imbalance is -1. Give a finite number of at least 0.
    """

    max_imbalance: float = 0.08
    max_entries: int = 3000
    max_bytes: float = math.inf
    beta: float = 1.5
    sigma: float = 0.01
    degree: int = 8

    def __post_init__(self) -> None:
        for name in ("max_imbalance", "beta", "sigma"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise SettingError(f"{name} is {value}. Give a finite number of at least 0.")
        if (
            isinstance(self.max_entries, bool)
            or int(self.max_entries) != self.max_entries
            or self.max_entries < 0
        ):
            raise SettingError(f"max_entries is {self.max_entries}. Give a whole number of at least 0.")
        if not self.max_bytes >= 0:
            raise SettingError(
                f"max_bytes is {self.max_bytes}. Give a number of at least 0, or infinity for no bound."
            )
        if self.degree < 1 or self.degree & (self.degree - 1):
            raise SettingError(f"degree is {self.degree}. Give a power of two: 1, 2, 4, 8, ...")
