"""Feedback-based scaling: instances that lag get more, in proportion to what they are sent.

Paper: Sun, Zhang, Gao, Buyya: "An adaptive load balancing strategy for stateful join operator in skewed data
stream environments", section 3.5, Algorithm 3, equations 15 to 17.

The paper gives each instance its own share of CPU and memory, and changes both while it runs. A task slot of
Spark cannot be made larger in a running application, so the plan asks for whole executors instead: the units
that the instances want, summed up, over the units of an executor. What else we changed or chose:

- An instance lags if its latency is at least theta times the mean (equation 15). With theta 1 some instance
  always lags, so theta must be above 1.
- The text computes a change for lagging instances only, the pseudocode for all of them once one lags. We
  follow the pseudocode: the others give back what they do not need, which is how the paper avoids waste.
- lambda is the relative excess of an instance's input rate over the mean, at most `most` (equation 17). The
  paper does not say what its cap was.
- Equation 17 sums to about zero over all instances before the cap, so alone it only shifts resources.
  Executors are asked for by what the lagging ones want; what the others would give back is told apart, as
  `spare`.
- Nothing is asked for beyond what is available (equation 16).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skewless.errors import SettingError
from skewless.model.snapshot import Floats


@dataclass(frozen=True, eq=False)
class ScalingPlan:
    """`changes` are units wanted by each instance, below zero where it can give; `executors` what to ask
    for."""

    lagging: tuple[int, ...]
    changes: Floats
    executors: int
    spare: float
    why: str


def aj_stream(
    latencies: ArrayLike,
    rates: ArrayLike,
    allocated: ArrayLike,
    total: float,
    *,
    theta: float = 1.5,
    most: float = 1.0,
    unit: float = 1.0,
    executor_units: float = 1.0,
) -> ScalingPlan:
    """A plan from each instance's latency (seconds), input rate (rows per second) and allocated units, for a
    cluster of `total` units. `unit` is what a lambda of 1 is worth.

    Two instances, and the second lags, with three times the rows of the first:

    >>> plan = aj_stream([0.1, 0.9], [100, 300], [1, 1], total=10)
    >>> plan.lagging, plan.changes, plan.executors
    ((1,), array([-0.5,  0.5]), 1)
    """
    late, rate, held = _checked(latencies, rates, allocated)
    _check_numbers(total=total, theta=theta, most=most, unit=unit, executor_units=executor_units)
    available = max(0.0, total - float(held.sum()))
    lagging = np.flatnonzero((late >= theta * late.mean()) & (late > 0)) if len(late) else np.zeros(0, int)
    nothing = np.zeros(len(late))
    if not len(lagging):
        return ScalingPlan((), nothing, 0, 0.0, "no instance lags")
    excess = rate / rate.mean() - 1 if rate.any() else nothing
    changes = unit * np.minimum(excess, most)
    wanted = float(np.maximum(changes[lagging], 0.0).sum())
    spare = float(-np.minimum(changes, 0.0).sum())
    affordable = math.floor(available / executor_units + 1e-9)
    executors = min(math.ceil(wanted / executor_units - 1e-9), affordable)
    return ScalingPlan(
        tuple(lagging.tolist()), changes, executors, spare, _why(len(lagging), wanted, executors)
    )


def _why(lagging: int, wanted: float, executors: int) -> str:
    who = f"{lagging} of the instances lag"
    if wanted <= 0:
        return f"{who}, though they are sent no more than the mean: more executors would not help"
    return f"{who} and want {wanted:.2f} units: {executors} executors can be had"


def _checked(*given: ArrayLike) -> tuple[Floats, Floats, Floats]:
    late, rate, held = (np.asarray(one, dtype=np.float64) for one in given)
    if not late.ndim == 1 or not late.shape == rate.shape == held.shape:
        raise SettingError(
            f"latencies, rates and allocated have shapes {late.shape}, {rate.shape} and {held.shape}. Give "
            f"one "
            "number of each per instance."
        )
    for name, array in (("latencies", late), ("rates", rate), ("allocated", held)):
        bad = array[~(np.isfinite(array) & (array >= 0))]
        if len(bad):
            raise SettingError(f"{name} hold {bad[0]}. Give finite numbers of zero or more.")
    return late, rate, held


def _check_numbers(**given: float) -> None:
    for name, value in given.items():
        least = 1.0 if name == "theta" else 0.0
        if not math.isfinite(value) or value < least or (name != "total" and value <= least):
            raise SettingError(f"{name} is {value}. Give a finite number above {least:g}.")
