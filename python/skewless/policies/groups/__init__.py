"""The placement policies by name: pure functions from (placement, limits) to a plan.

>>> from skewless.model.placement import Groups, Nodes, Placement
>>> from skewless.policies import groups
>>> placement = Placement(Nodes.of(["a", "b"]), Groups.of([0, 1], [40, 20], [1, 1], nodes=[0, 0]))
>>> groups.get("greedy")(placement, PlacementLimits(max_bytes=1)).moves
{0: 'b'}
"""

from __future__ import annotations

from typing import Protocol

from skewless.errors import PolicyError
from skewless.model.placement import Placement, PlacementLimits, PlacementPlan
from skewless.policies.groups.albic import albic
from skewless.policies.groups.cola import cola
from skewless.policies.groups.flux import flux
from skewless.policies.groups.greedy import greedy
from skewless.policies.groups.milp import milp
from skewless.policies.groups.potc import potc
from skewless.policies.groups.settle import seat, settle

__all__ = ["PlacementPolicy", "get", "names", "register", "seat", "settle"]


class PlacementPolicy(Protocol):
    """Anything that can be called like this is a placement policy; it must not change its arguments."""

    def __call__(self, placement: Placement, limits: PlacementLimits, /) -> PlacementPlan: ...


_POLICIES: dict[str, PlacementPolicy] = {
    "albic": albic,
    "cola": cola,
    "flux": flux,
    "greedy": greedy,
    "milp": milp,
    "potc": potc,
}


def register(name: str, policy: PlacementPolicy) -> PlacementPolicy:
    """Makes a placement policy known by name; a name is given once."""
    if not isinstance(name, str) or not name.isidentifier():
        raise PolicyError(f"a policy cannot be called {name!r}. Use letters, digits and underscores.")
    if not callable(policy):
        raise PolicyError(f"policy {name!r} is a {type(policy).__name__}. Give a function.")
    if name in _POLICIES and _POLICIES[name] is not policy:
        raise PolicyError(f"there is a placement policy {name!r} already. Choose another name.")
    _POLICIES[name] = policy
    return policy


def names() -> tuple[str, ...]:
    """Every name that `get` knows."""
    return tuple(sorted(_POLICIES))


def get(name: str) -> PlacementPolicy:
    """The placement policy of this name.

    >>> get("magic")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    skewless.errors.PolicyError: there is no placement policy 'magic'. Choose one of: albic, ..., potc.
    """
    if name not in _POLICIES:
        raise PolicyError(f"there is no placement policy {name!r}. Choose one of: {', '.join(names())}.")
    return _POLICIES[name]
