"""The split policies by name: how many partitions each key of a join is spread over.

>>> from skewless.policies import splits
>>> splits.names()
('aj_stream', 'auto', 'd_choices', 'fish', 'pkg', 'w_choices')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skewless.errors import PolicyError
from skewless.model.snapshot import Floats
from skewless.model.spread import Ints
from skewless.policies.splits.aj_stream import aj_stream, first_fit
from skewless.policies.splits.auto import auto
from skewless.policies.splits.d_choices import d_choices
from skewless.policies.splits.fish import fish
from skewless.policies.splits.fit import least_loaded
from skewless.policies.splits.pkg import pkg
from skewless.policies.splits.seen import Seen
from skewless.policies.splits.w_choices import w_choices

__all__ = ["Seen", "SplitPolicy", "get", "names", "register"]

Widths = Callable[[Seen], Ints]
"""A width for each key that is seen; 1 leaves it whole. It must not change what it is given."""
Fit = Callable[[Floats, tuple[int, ...], float, int], tuple[int, ...]]
"""(loads, partitions that the key has, cost of a cell, how many more) -> partitions to begin with."""


@dataclass(frozen=True)
class SplitPolicy:
    """How wide each key is, and where its new slots stand before a move policy places them."""

    name: str
    widths: Widths
    fit: Fit = least_loaded


_POLICIES = {
    policy.name: policy
    for policy in (
        SplitPolicy("aj_stream", aj_stream, first_fit),
        SplitPolicy("auto", auto),
        SplitPolicy("d_choices", d_choices),
        SplitPolicy("fish", fish),
        SplitPolicy("pkg", pkg),
        SplitPolicy("w_choices", w_choices),
    )
}


def register(name: str, widths: Widths) -> SplitPolicy:
    """Makes a split policy known by name, to `skewless.balance` and to the simulator; a name is given once.

    >>> import numpy as np
    >>> register("three", lambda seen: np.where(seen.shares > 0.5, 3, 1)) is get("three")
    True
    >>> _ = _POLICIES.pop("three")
    """
    if not isinstance(name, str) or not name.isidentifier() or name == "off":
        raise PolicyError(f"a split policy cannot be called {name!r}. Use letters, digits and underscores.")
    if not callable(widths):
        raise PolicyError(f"split policy {name!r} is a {type(widths).__name__}. Give a function.")
    if name in _POLICIES:
        raise PolicyError(f"there is a split policy {name!r} already. Choose another name.")
    _POLICIES[name] = SplitPolicy(name, widths)
    return _POLICIES[name]


def names() -> tuple[str, ...]:
    """Every name that `get` knows."""
    return tuple(sorted(_POLICIES))


def get(name: str) -> SplitPolicy:
    """The split policy of this name.

    >>> get("wide")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    skewless.errors.PolicyError: there is no split policy 'wide'. Choose one of: aj_stream, auto, ...
    """
    if name not in _POLICIES:
        raise PolicyError(f"there is no split policy {name!r}. Choose one of: {', '.join(names())}.")
    return _POLICIES[name]
