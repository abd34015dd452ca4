"""Every routing scheme of the papers, by name: the per-tuple schemes and the table policies.

Separate from the schemes, which do not know each other.

>>> make("fish:alpha=0.5,ring=off", Cluster(8)).alpha
0.5
>>> [name for name in NAMES if not NAMES[name].splits]  # doctest: +NORMALIZE_WHITESPACE
['hash', 'potc', 'on-greedy', 'off-greedy', 'compact', 'llfd', 'min_mig', 'min_table', 'mixed', 'mixed_bf',
'readj', 'simple']
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

from skewless import policies
from skewless.errors import SettingError
from skewless.simulate.cluster import Cluster
from skewless.simulate.schemes.d_choices import DChoices
from skewless.simulate.schemes.fish import Fish
from skewless.simulate.schemes.key_grouping import KeyGrouping
from skewless.simulate.schemes.off_greedy import OffGreedy
from skewless.simulate.schemes.pkg import Greedy, PartialKeyGrouping
from skewless.simulate.schemes.potc import OnGreedy, PowerOfTwoChoices
from skewless.simulate.schemes.scheme import Scheme
from skewless.simulate.schemes.shuffle_grouping import ShuffleGrouping
from skewless.simulate.schemes.table_policy import POLICIES, TableScheme
from skewless.simulate.schemes.w_choices import WChoices

NAMES: dict[str, type[Scheme]] = {
    "hash": KeyGrouping,
    "shuffle": ShuffleGrouping,
    "potc": PowerOfTwoChoices,
    "on-greedy": OnGreedy,
    "off-greedy": OffGreedy,
    "pkg": PartialKeyGrouping,
    "greedy": Greedy,
    "d-choices": DChoices,
    "w-choices": WChoices,
    "fish": Fish,
    **dict.fromkeys(POLICIES, TableScheme),
}

Option = int | float | bool | str


def kind(spec: str) -> type[Scheme]:
    """The class that a specification such as `greedy:d=4` names."""
    name = spec.partition(":")[0]
    if name in policies.names():  # those that users registered, too
        return TableScheme
    if name not in NAMES:
        raise SettingError(f"scheme {name!r} is unknown. Choose one of {', '.join(NAMES)}.")
    return NAMES[name]


def make(spec: str, cluster: Cluster, batch: int | None = None) -> Scheme:
    """A scheme from `name` or `name:option=value,option=value`. A table policy plans after each `batch`
    tuples, unless the specification has an interval of its own."""
    if not isinstance(cluster, Cluster):
        raise SettingError(f"{cluster!r} is no cluster. Give Cluster(8), for example, for eight workers.")
    scheme, options = kind(spec), _options(spec)
    allowed = [
        name
        for name in inspect.signature(scheme.__init__).parameters
        if name not in ("self", "cluster", "policy")
    ]
    for name in options:
        if name not in allowed:
            raise SettingError(
                f"scheme {spec.partition(':')[0]!r} has no option {name!r}. It takes "
                f"{', '.join(allowed) or 'none'}."
            )
    if issubclass(scheme, TableScheme):
        options["policy"] = spec.partition(":")[0]
        if batch is not None:
            options.setdefault("interval", batch)
    try:
        return cast(Callable[..., Scheme], scheme)(cluster, **options)
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"{spec!r} cannot be made: {error}. Give numbers for numbers, on or off for switches."
        ) from error


def _options(spec: str) -> dict[str, Option]:
    text = spec.partition(":")[2]
    pairs = [pair.partition("=") for pair in text.split(",")] if text else []
    return {name.strip(): _value(value.strip()) for name, _, value in pairs}


def _value(text: str) -> Option:
    if text in ("on", "off"):
        return text == "on"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
