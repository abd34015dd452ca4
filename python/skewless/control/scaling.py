"""How many nodes there should be, decided together with who holds what.

Madsen, Zhou, Cao: "Integrative Dynamic Reconfiguration in a Parallel Stream Processing Engine" (ICDE 2017),
section III-A, Algorithm 1: plan, ask whether to scale, plan again, apply. Separate from the policies because
a policy takes the nodes as given. A pure function: who applies the answer adds nodes, moves groups and ends
nodes.

What we changed, and why: the paper leaves the question "whether to scale" open. Here nodes are too few if on
average they carry more than the target: what only stands unevenly is the plan's to mend, and adds no node.
They are too many if the others would all stay below the target under the plan made without some of them.
Between the two lies `slack`, so that a load that stands still never scales to and fro. What bringing groups
together would save is not foreseen: it shows in the next period's loads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skewless.errors import SettingError
from skewless.model.placement import Nodes, Placement, PlacementLimits, PlacementPlan
from skewless.policies.groups import PlacementPolicy


@dataclass(frozen=True)
class Scale:
    """How many nodes there may be, and how much of its capacity each should use.

    min, max   number of nodes
    target     load that a node should have, as a share of its capacity; a load of 100 points is all of it
    slack      how far below the target the load must lie before nodes are taken away
    patience   periods (batches) in a row that must ask for the same before it is done
    cooldown_seconds   rest after a change
    wait_seconds       how long a new node is waited for

    >>> Scale(min=3, max=2)
    Traceback (most recent call last):
    skewless.errors.SettingError: min is 3 and max is 2. Give 1 <= min <= max.
    """

    min: int = 1
    max: int = 8
    target: float = 0.7
    slack: float = 0.1
    patience: int = 5
    cooldown_seconds: float = 120.0
    wait_seconds: float = 120.0

    def __post_init__(self) -> None:
        if not 1 <= self.min <= self.max:
            raise SettingError(f"min is {self.min} and max is {self.max}. Give 1 <= min <= max.")
        if not 0 <= self.slack < self.target <= 1:
            raise SettingError(
                f"target is {self.target} and slack {self.slack}. Give 0 <= slack < target <= 1."
            )
        for name, least in (("patience", 1), ("cooldown_seconds", 0), ("wait_seconds", 0)):
            if not getattr(self, name) >= least:
                raise SettingError(f"{name} is {getattr(self, name)}. Give at least {least}.")


@dataclass(frozen=True, eq=False)
class Adaptation:
    """One answer of Algorithm 1: nodes to end now, nodes to add, nodes to empty from now on, and the plan,
    which counts with all of this."""

    ended: tuple[str, ...]
    added: tuple[str, ...]
    leaving: tuple[str, ...]
    plan: PlacementPlan


def adapt(placement: Placement, limits: PlacementLimits, scale: Scale, policy: PlacementPolicy) -> Adaptation:
    """One round of Algorithm 1. A node that is added has capacity 1 and a name that begins with "new".

    >>> from skewless.model.placement import Groups
    >>> from skewless.policies import groups
    >>> nodes = Nodes.of(["a", "b"])
    >>> busy = Placement(nodes, Groups.of(range(6), [30] * 6, [1] * 6, nodes=[0, 0, 0, 1, 1, 1]))
    >>> answer = adapt(busy, PlacementLimits(), Scale(max=4), groups.get("greedy"))
    >>> answer.added, answer.plan.distance_after
    (('new-1',), 0.0)
    """
    ended = _emptied(placement)
    rest = _without(placement, ended)
    plan = policy(rest, limits)
    for nodes in _other_nodes(rest, scale):
        changed = Placement(nodes, rest.groups, rest.flows)
        again = policy(changed, limits)
        too_many = len(rest.nodes.takers) > scale.max
        if len(nodes) > len(rest.nodes) or too_many or _fits(again, scale):
            added = nodes.names[len(rest.nodes) :]
            return Adaptation(ended, added, _newly_leaving(rest.nodes, nodes), again)
    return Adaptation(ended, (), (), plan)


def _emptied(placement: Placement) -> tuple[str, ...]:
    """Nodes that were to be emptied, and are (lines 1 to 5)."""
    held = np.bincount(placement.sources[placement.sources >= 0], minlength=len(placement.nodes))
    nodes = placement.nodes
    return tuple(nodes.names[i] for i in np.flatnonzero(nodes.alive & nodes.leaving & (held == 0)).tolist())


def _without(placement: Placement, ended: tuple[str, ...]) -> Placement:
    """The same placement with these nodes dead: they hold nothing and may take nothing."""
    nodes = placement.nodes
    gone = np.array([name in ended for name in nodes.names], dtype=np.bool_)
    rest = Nodes(nodes.names, nodes.capacities, nodes.alive & ~gone, nodes.leaving & ~gone)
    return Placement(rest, placement.groups, placement.flows)


def _other_nodes(placement: Placement, scale: Scale) -> list[Nodes]:
    """The nodes after scaling (line 7), most wanted first; empty if their number is right."""
    nodes, takers, load = placement.nodes, placement.nodes.takers, float(placement.loads.sum())
    room = float(nodes.capacities[takers].sum())
    more = max(math.ceil(load / (100 * scale.target) - room - 1e-9), scale.min - len(takers))
    more = min(more, scale.max - len(takers))
    if more > 0:
        return [_with_new(nodes, more)]
    by_load = takers[np.argsort(placement.node_loads(placement.sources)[takers], kind="stable")]
    too_many = max(0, len(takers) - scale.max)
    wanted = 100 * (scale.target - scale.slack)
    choices = []
    for fewer in range(len(takers) - scale.min, max(1, too_many) - 1, -1):
        if fewer == too_many or load <= wanted * float(nodes.capacities[by_load[fewer:]].sum()):
            leaving = nodes.leaving.copy()
            leaving[by_load[:fewer]] = True
            choices.append(Nodes(nodes.names, nodes.capacities, nodes.alive, leaving))
    return choices


def _with_new(nodes: Nodes, more: int) -> Nodes:
    taken, names = set(nodes.names), list(nodes.names)
    fresh = (f"new-{i}" for i in range(1, len(nodes) + more + 1))
    names += [name for name in fresh if name not in taken][:more]
    return Nodes(
        tuple(names),
        np.concatenate([nodes.capacities, np.ones(more)]),
        np.concatenate([nodes.alive, np.ones(more, dtype=np.bool_)]),
        np.concatenate([nodes.leaving, np.zeros(more, dtype=np.bool_)]),
    )


def _fits(plan: PlacementPlan, scale: Scale) -> bool:
    """Whether every node that stays would be below the target once the leaving ones are empty: a plan may
    need several rounds for it, so what they still hold is counted with the mean."""
    places = plan.placement
    loads = places.node_loads(plan.targets)[places.nodes.takers]
    return max(float(loads.max(initial=0.0)), places.mean) <= 100 * scale.target


def _newly_leaving(before: Nodes, after: Nodes) -> tuple[str, ...]:
    was = dict(zip(before.names, before.leaving.tolist(), strict=True))
    pairs = zip(after.names, after.leaving.tolist(), strict=True)
    return tuple(name for name, leaves in pairs if leaves and not was[name])
