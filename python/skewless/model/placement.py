"""Which node holds which group: nodes (executors) and groups (shuffle partitions of stateful operators) as
observed over a period, and a plan that places the groups anew.

Separate from the snapshot because a table decides which partition a key goes to, a placement which executor a
partition goes to: keys are levelled over partitions there, partitions over executors here.

Three groups on two nodes; a load is a percentage of what a node of capacity 1 can do:

>>> nodes = Nodes.of(["a", "b"])
>>> placement = Placement(nodes, Groups.of([0, 1, 2], [30, 20, 10], state_bytes=[5, 4, 1], nodes=[0, 0, 1]))
>>> placement.node_loads(placement.sources)
array([50., 10.])
>>> placement.distance(placement.sources)       # from the mean, 30
20.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skewless.errors import PolicyError, SettingError
from skewless.model.snapshot import Floats

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NOWHERE = -1  # the node of a group whose node is dead, or that was never placed


@dataclass(frozen=True, eq=False)
class Nodes:
    """Executors. `capacities` say how much one does against the others; a node that is `leaving` still works
    but takes nothing more; one that is not `alive` holds nothing."""

    names: tuple[str, ...]
    capacities: Floats
    alive: Bools
    leaving: Bools

    @classmethod
    def of(
        cls,
        names: list[str] | tuple[str, ...],
        capacities: ArrayLike | None = None,
        *,
        dead: tuple[str, ...] = (),
        leaving: tuple[str, ...] = (),
    ) -> Nodes:
        """Nodes by name, in the order given.

        >>> Nodes.of(["a", "b", "c"], dead=("a",), leaving=("c",)).takers
        array([1])
        """
        if len(set(names)) != len(names):
            raise SettingError("two nodes have one name. Give each executor its own id.")
        strangers = {*dead, *leaving} - set(names)
        if strangers:
            raise SettingError(
                f"{sorted(strangers)[0]!r} is not among the nodes. Name nodes that are listed."
            )
        room = np.ones(len(names)) if capacities is None else np.array(capacities, dtype=np.float64)
        if room.shape != (len(names),) or not bool(np.all(np.isfinite(room) & (room > 0))):
            raise SettingError("each node needs a capacity: a finite number above 0.")
        alive = np.array([name not in dead for name in names], dtype=np.bool_)
        return cls(tuple(names), room, alive, np.array([n in leaving for n in names], dtype=np.bool_))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def takers(self) -> Ints:
        """Positions of the nodes that may take groups: alive and not leaving."""
        return np.flatnonzero(self.alive & ~self.leaving).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Groups:
    """Shuffle partitions of stateful operators: load in each resource, bytes of state, and the node of each.

    Build them with `of`, which sorts them by id, so that no plan depends on the order in which they came.
    """

    ids: Ints
    loads: Floats  # one row for each resource
    state_bytes: Floats
    nodes: Ints
    operators: Ints
    resources: tuple[str, ...]

    @classmethod
    def of(
        cls,
        ids: ArrayLike,
        loads: ArrayLike | Mapping[str, ArrayLike],
        state_bytes: ArrayLike,
        nodes: ArrayLike,
        operators: ArrayLike | None = None,
    ) -> Groups:
        """Groups from lists or arrays; `loads` of one resource, or by name of resource."""
        order = np.argsort(np.array(ids, dtype=np.int64), kind="stable")
        every = loads if isinstance(loads, Mapping) else {"load": loads}
        count = len(order)
        rows = [_amounts(name, values, count)[order] for name, values in every.items()]
        where = np.array(nodes, dtype=np.int64)
        kinds = np.zeros(count, dtype=np.int64) if operators is None else np.array(operators, dtype=np.int64)
        if where.shape != (count,) or kinds.shape != (count,):
            raise SettingError("nodes and operators need one number for each group.")
        identities = np.array(ids, dtype=np.int64)[order]
        if np.any(identities[1:] == identities[:-1]):
            raise SettingError("two groups have one id. Give each group its own.")
        sizes = _amounts("state_bytes", state_bytes, count)[order]
        return cls(
            identities,
            np.array(rows).reshape(len(rows), count),
            sizes,
            where[order],
            kinds[order],
            tuple(every),
        )

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Flows:
    """What groups send each other: positions of the sending and the taking group, and a rate."""

    sources: Ints
    targets: Ints
    rates: Floats

    @classmethod
    def of(cls, sources: ArrayLike, targets: ArrayLike, rates: ArrayLike) -> Flows:
        """Flows from lists or arrays, one rate for each pair."""
        froms, tos = np.array(sources, dtype=np.int64), np.array(targets, dtype=np.int64)
        if froms.shape != tos.shape or froms.ndim != 1:
            raise SettingError("flows need one source, one target and one rate each.")
        return cls(froms, tos, _amounts("rates", rates, len(froms)))

    @classmethod
    def none(cls) -> Flows:
        return cls.of([], [], [])

    def __len__(self) -> int:
        return len(self.rates)


@dataclass(frozen=True, eq=False)
class Placement:
    """Nodes, the groups on them and the flows between groups, as observed over one period."""

    nodes: Nodes
    groups: Groups
    flows: Flows = field(default_factory=Flows.none)

    def __post_init__(self) -> None:
        where, ends = self.groups.nodes, np.concatenate([self.flows.sources, self.flows.targets])
        if len(where) and not (where.min() >= NOWHERE and where.max() < len(self.nodes)):
            raise SettingError(f"a group is on a node that is not listed: there are {len(self.nodes)}.")
        if len(ends) and not (ends.min() >= 0 and ends.max() < len(self.groups)):
            raise SettingError(f"a flow names a group that is not listed: there are {len(self.groups)}.")

    @cached_property
    def sources(self) -> Ints:
        """The node of each group now; NOWHERE if that node is dead."""
        where = self.groups.nodes
        if not len(self.nodes):
            return where
        return np.where((where >= 0) & self.nodes.alive[where], where, NOWHERE)

    @property
    def bottleneck(self) -> str:
        """The resource with the greatest use in the whole system (ALBIC, section II)."""
        return self.groups.resources[int(self.groups.loads.sum(axis=1).argmax())]

    @cached_property
    def loads(self) -> Floats:
        """The load of each group in the bottleneck resource."""
        return np.asarray(self.groups.loads[self.groups.resources.index(self.bottleneck)])

    @cached_property
    def mean(self) -> float:
        """The load that each node would have if all that stay carried the same (section III-B)."""
        room = float(self.nodes.capacities[self.nodes.takers].sum())
        return float(self.loads.sum()) / room if room else 0.0

    def node_loads(self, targets: Ints) -> Floats:
        """The load of each node, as a share of its capacity, if group k sits on targets[k]."""
        placed = targets >= 0
        sums = np.bincount(targets[placed], weights=self.loads[placed], minlength=len(self.nodes))
        return np.asarray(sums / self.nodes.capacities)

    def distance(self, targets: Ints) -> float:
        """The load distance: the largest difference to the mean among the nodes that stay."""
        takers = self.nodes.takers
        return float(np.abs(self.node_loads(targets)[takers] - self.mean).max()) if len(takers) else 0.0

    def stranded(self, targets: Ints) -> int:
        """Groups that still sit on a node that is leaving; the node can go when there are none."""
        placed = targets[targets >= 0]
        return int(self.nodes.leaving[placed].sum()) if len(placed) else 0

    def bytes_moved(self, targets: Ints) -> float:
        """State that a plan moves. What a dead node held must be loaded anew in any case, and is free."""
        return float(self.groups.state_bytes[(targets != self.sources) & (self.sources >= 0)].sum())

    def collocation(self, targets: Ints) -> float:
        """The share of the flows that stays on one node."""
        total = float(self.flows.rates.sum())
        if total == 0:
            return 1.0
        ends = targets[self.flows.sources], targets[self.flows.targets]
        return float(self.flows.rates[(ends[0] == ends[1]) & (ends[0] >= 0)].sum()) / total


@dataclass(frozen=True)
class PlacementLimits:
    """What a placement must keep to. The paper's symbol stands behind each.

    max_bytes     state bytes that one plan may move (maxMigrCost; the paper's constant alpha is 1)
    max_distance  load distance up to which groups may be put together, in points of load (maxLD)
    max_part      load that a set of collocated groups may have, as a share of the mean load (maxPL)
    score_factor  how far above its average a flow must be to be worth collocating (sF)
    seconds       what a plan may take; a solver is stopped before

    >>> PlacementLimits(max_bytes=-1)
    Traceback (most recent call last):
    skewless.errors.SettingError: max_bytes is -1. Give a number of at least 0.
    """

    max_bytes: float = math.inf
    max_distance: float = 5.0
    max_part: float = 0.5
    score_factor: float = 1.5
    seconds: float = 2.0

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_distance", "max_part", "score_factor", "seconds"):
            if not getattr(self, name) >= 0:
                raise SettingError(f"{name} is {getattr(self, name)}. Give a number of at least 0.")


@dataclass(frozen=True, eq=False)
class PlacementPlan:
    """Where each group should go. It is a value; making one moves nothing. `reasons` say in words what the
    plan could not do."""

    placement: Placement
    targets: Ints
    seconds: float
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.targets.shape != self.placement.sources.shape:
            raise PolicyError("a placement plan needs one target for each group.")
        self.targets.setflags(write=False)

    @property
    def distance_before(self) -> float:
        return self.placement.distance(self.placement.sources)

    @property
    def distance_after(self) -> float:
        return self.placement.distance(self.targets)

    @property
    def bytes_moved(self) -> float:
        return self.placement.bytes_moved(self.targets)

    @property
    def moves(self) -> dict[int, str]:
        """The node for each group that changes its place, by the group's id."""
        changed = np.flatnonzero(self.targets != self.placement.sources).tolist()
        ids, names = self.placement.groups.ids, self.placement.nodes.names
        return {int(ids[k]): names[int(self.targets[k])] for k in changed}


def _amounts(name: str, values: ArrayLike, count: int) -> Floats:
    array = np.array(values, dtype=np.float64)
    if array.shape != (count,):
        raise SettingError(f"{name} have shape {array.shape}, not ({count},). Give one number each.")
    if not bool(np.all(np.isfinite(array) & (array >= 0))):
        raise SettingError(f"{name} hold a number that is negative or not finite. Give amounts.")
    return array
