"""The policies by name: pure functions from (snapshot, table, limits) to a plan.

>>> from skewless.policies import Limits, get
>>> from skewless.model.snapshot import Snapshot
>>> from skewless.model.table import Table
>>> table = Table(2)
>>> plan = get("mixed")(Snapshot.of(table, [0, 2], [1.0, 1.0]), table, Limits(max_imbalance=0.02))
>>> plan.imbalance_before, plan.imbalance_after, plan.table.route([0, 2])
(1.0, 0.0, array([1, 0], dtype=int32))
"""

from __future__ import annotations

from typing import Protocol

from skewless.errors import PolicyError
from skewless.model.limits import Limits
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies.compact import compact
from skewless.policies.llfd import llfd
from skewless.policies.min_mig import min_mig
from skewless.policies.min_table import min_table
from skewless.policies.mixed import mixed, mixed_bf
from skewless.policies.problem import Items, Problem, pose
from skewless.policies.readj import readj
from skewless.policies.settle import settle
from skewless.policies.simple import simple
from skewless.policies.take_back import take_back

__all__ = ["Items", "Limits", "Plan", "Policy", "Problem", "get", "names", "pose", "register", "settle"]


class Policy(Protocol):
    """Anything that can be called like this is a policy; it must not change its arguments."""

    def __call__(self, snapshot: Snapshot, table: Table, limits: Limits, /) -> Plan: ...


_POLICIES: dict[str, Policy] = {
    "compact": compact,
    "llfd": llfd,
    "min_mig": min_mig,
    "min_table": min_table,
    "mixed": mixed,
    "mixed_bf": mixed_bf,
    "readj": readj,
    "simple": simple,
    "take_back": take_back,
}


def register(name: str, policy: Policy) -> Policy:
    """Makes a policy known by name, to `skewless.balance` and to the simulator; a name is given once.

    >>> def stay(snapshot, table, limits):
    ...     problem = pose(snapshot, table, limits)
    ...     return settle(problem, problem.items.sources)
    >>> register("stay", stay) is get("stay")
    True
    >>> _ = _POLICIES.pop("stay")
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise PolicyError(f"a policy cannot be called {name!r}. Use letters, digits and underscores.")
    if not callable(policy):
        raise PolicyError(f"policy {name!r} is a {type(policy).__name__}. Give a function.")
    if name in _POLICIES and _POLICIES[name] is not policy:
        raise PolicyError(f"there is a policy {name!r} already. Choose another name.")
    _POLICIES[name] = policy
    return policy


def names() -> tuple[str, ...]:
    """Every name that `get` knows."""
    return tuple(sorted(_POLICIES))


def get(name: str) -> Policy:
    """The policy of this name.

    >>> get("magic")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    skewless.errors.PolicyError: there is no policy 'magic'. Choose one of: compact, llfd, ..., take_back.
    """
    if name not in _POLICIES:
        raise PolicyError(f"there is no policy {name!r}. Choose one of: {', '.join(names())}.")
    return _POLICIES[name]
