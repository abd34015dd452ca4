"""What a user may set of the loop, checked where it is given.

Separate from the watch because the loop, the watch and `skewless.balance` all read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skewless import forecast, policies
from skewless.control.costs import CostFunction
from skewless.control.foresight import NONE
from skewless.control.pace import Pace
from skewless.control.placement_pace import PlacementPace
from skewless.control.scaling import Scale
from skewless.errors import SettingError
from skewless.model.limits import Limits
from skewless.policies import Policy, groups, splits
from skewless.policies.groups import PlacementPolicy
from skewless.policies.splits import SplitPolicy
from skewless.report.records import KEPT_BATCHES

AHEAD_WAIT_MS = 2000
OFF = "off"


@dataclass(frozen=True)
class Settings:
    """What a user may set of the loop; checked here, so that a mistake is told where it was made."""

    policy: str | Policy | None = "mixed"
    limits: Limits = field(default_factory=Limits)
    pace: Pace = field(default_factory=Pace)
    window: int = 8
    decay: float = 0.5
    cost: CostFunction | None = None
    poll_seconds: float = 0.2
    plan_wait_ms: int = 0
    look_ahead: bool = False
    forecast: str = NONE
    forecast_folder: str | None = None
    splits: str | SplitPolicy = OFF
    placement: str | PlacementPolicy = OFF
    scale: Scale | None = None
    placement_pace: PlacementPace = field(default_factory=PlacementPace)

    def __post_init__(self) -> None:
        self._check_what_decides()
        self._check_placement()
        self._check_numbers()

    def _check_what_decides(self) -> None:
        if isinstance(self.policy, str):
            policies.get(self.policy)
        elif self.policy is not None and not callable(self.policy):
            raise SettingError(
                f"policy is {self.policy!r}. Give a policy's name, a function, or None to publish by hand."
            )
        if isinstance(self.splits, str) and self.splits != OFF:
            splits.get(self.splits)
        elif not isinstance(self.splits, (str, SplitPolicy)):
            raise SettingError(
                f'splits is {self.splits!r}. Give "auto", "off", or a name of '
                "skewless.policies.splits.names()."
            )
        if not isinstance(self.pace, Pace):
            raise SettingError(f"pace is {self.pace!r}. Give a skewless.Pace, or leave it out.")
        if self.cost is not None and not callable(self.cost):
            raise SettingError(
                f"cost is {self.cost!r}. Give a function of (key_hashes, rows), or leave it out."
            )
        if not isinstance(self.look_ahead, bool):
            raise SettingError(f"look_ahead is {self.look_ahead!r}. Give True or False.")
        if self.forecast != NONE:
            forecast.check(self.forecast)
        if self.forecast_folder is not None and not isinstance(self.forecast_folder, str):
            raise SettingError(f"forecast_folder is {self.forecast_folder!r}. Give a path, or leave it out.")

    def _check_placement(self) -> None:
        if isinstance(self.placement, str) and self.placement != OFF:
            groups.get(self.placement)
        elif not isinstance(self.placement, str) and not callable(self.placement):
            raise SettingError(
                f'placement is {self.placement!r}. Give "off", a name of '
                "skewless.policies.groups.names(), or a function."
            )
        if self.scale is not None and not isinstance(self.scale, Scale):
            raise SettingError(f"scale is {self.scale!r}. Give a skewless.Scale, or leave it out.")
        if not isinstance(self.placement_pace, PlacementPace):
            raise SettingError(
                f"placement_pace is {self.placement_pace!r}. Give a skewless.PlacementPace, or leave it out."
            )

    def _check_numbers(self) -> None:
        if (
            isinstance(self.window, bool)
            or not isinstance(self.window, int)
            or not 1 <= self.window <= KEPT_BATCHES
        ):
            raise SettingError(
                f"window is {self.window!r}. Give a whole number of batches from 1 to {KEPT_BATCHES}."
            )
        if (
            isinstance(self.decay, bool)
            or not isinstance(self.decay, (int, float))
            or not 0 < self.decay <= 1
        ):
            raise SettingError(
                f"decay is {self.decay!r}. Give a number above 0, 1 at most (1: all batches of the window "
                "alike)."
            )
        if not 0 < self.poll_seconds <= 3600:
            raise SettingError(
                f"poll_seconds is {self.poll_seconds!r}. Give a number of seconds above 0, 3600 at most."
            )
        if (
            isinstance(self.plan_wait_ms, bool)
            or not isinstance(self.plan_wait_ms, int)
            or not 0 <= self.plan_wait_ms <= 60_000
        ):
            raise SettingError(
                f"plan_wait_ms is {self.plan_wait_ms!r}. Give whole milliseconds from 0 (never wait) to "
                "60000."
            )

    @property
    def wait_ms(self) -> int:
        """How long a planner waits: without a wait nothing can be made of what is ahead."""
        return self.plan_wait_ms or (AHEAD_WAIT_MS if self.look_ahead else 0)

    @property
    def by_hand(self) -> bool:
        """Nothing is planned: tables are published by the user."""
        return self.policy is None

    @property
    def placement_policy(self) -> PlacementPolicy | None:
        """None: nothing is levelled over executors. Scaling needs a plan, and takes the greedy's."""
        if not isinstance(self.placement, str):
            return self.placement
        if self.placement == OFF:
            return groups.get("greedy") if self.scale is not None else None
        return groups.get(self.placement)

    @property
    def placement_name(self) -> str:
        if not isinstance(self.placement, str):
            return getattr(self.placement, "__name__", type(self.placement).__name__)
        return "greedy" if self.placement == OFF and self.scale is not None else self.placement

    @property
    def words(self) -> str:
        return (
            f"policy {self.policy_name}, max_imbalance {self.limits.max_imbalance:g}, "
            f"max_entries {self.limits.max_entries}, splits {self.splits_name}"
        )

    @property
    def split_policy(self) -> SplitPolicy | None:
        """None: no key is split."""
        if isinstance(self.splits, SplitPolicy):
            return self.splits
        return None if self.splits == OFF else splits.get(self.splits)

    @property
    def splits_name(self) -> str:
        return self.splits if isinstance(self.splits, str) else self.splits.name

    @property
    def policy_name(self) -> str:
        return (
            self.policy
            if isinstance(self.policy, str)
            else getattr(self.policy, "__name__", type(self.policy).__name__)
        )
