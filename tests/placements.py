"""Placements for tests: random small ones with every oddity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from skewless.model.placement import NOWHERE, Flows, Groups, Nodes, Placement, PlacementLimits

NAMES = "abcde"


@dataclass(frozen=True)
class Case:
    """Raw input of a placement policy: kept apart from a Placement so that a test can shuffle the groups."""

    nodes: Nodes
    loads: tuple[float, ...]
    memory: tuple[float, ...]
    state_bytes: tuple[float, ...]
    where: tuple[int, ...]
    operators: tuple[int, ...]
    flows: tuple[tuple[int, int, float], ...]
    limits: PlacementLimits

    def placement(self, order: list[int] | None = None) -> Placement:
        """Groups in this order; flows name positions, and the groups are sorted by id, so they stay."""
        at = np.array(order if order is not None else range(len(self.loads)), dtype=np.int64)
        loads, memory, size, where, kinds = (
            np.array(values)[at] if len(at) else np.array([])
            for values in (self.loads, self.memory, self.state_bytes, self.where, self.operators)
        )
        groups = Groups.of(at, {"cpu": loads, "memory": memory}, size, where, kinds)
        return Placement(
            self.nodes, groups, Flows.of(*zip(*self.flows, strict=True)) if self.flows else Flows.none()
        )


@st.composite
def cases(draw: st.DrawFn, most_groups: int = 12, most_nodes: int = 4) -> Case:
    """Ties, zero loads, no state, giants, dead and leaving nodes, flows, several capacities."""
    n = draw(st.integers(1, most_nodes))
    names = list(NAMES[:n])
    status = draw(st.lists(st.sampled_from("aaaadl"), min_size=n, max_size=n))
    room = draw(st.lists(st.sampled_from([1.0, 1.0, 2.0]), min_size=n, max_size=n))
    nodes = Nodes.of(
        names,
        room,
        dead=tuple(name for name, s in zip(names, status, strict=True) if s == "d"),
        leaving=tuple(name for name, s in zip(names, status, strict=True) if s == "l"),
    )
    g = draw(st.integers(0, most_groups))
    weight = st.one_of(st.integers(0, 12).map(float), st.floats(0, 50, allow_subnormal=False), st.just(200.0))
    loads, memory, state = (
        tuple(draw(st.lists(values, min_size=g, max_size=g)))
        for values in (weight, st.sampled_from([0.0, 5.0]), st.integers(0, 30).map(float))
    )
    where = tuple(draw(st.lists(st.integers(NOWHERE, n - 1), min_size=g, max_size=g)))
    operators = tuple(draw(st.lists(st.integers(0, 2), min_size=g, max_size=g)))
    ends = st.integers(0, max(0, g - 1))
    flow = st.tuples(ends, ends, st.sampled_from([0.0, 1.0, 5.0, 100.0]))
    flows = tuple(draw(st.lists(flow, max_size=8))) if g else ()
    limits = PlacementLimits(
        max_bytes=draw(st.sampled_from([0.0, 20.0, 60.0, float("inf")])),
        max_distance=draw(st.sampled_from([0.0, 5.0, 50.0])),
        max_part=draw(st.sampled_from([0.0, 0.5, 2.0])),
    )
    return Case(nodes, loads, memory, state, where, operators, flows, limits)


def on_one_node(loads: list[float], nodes: int) -> Placement:
    """Groups of these loads, all on one node; each has one byte of state."""
    count = len(loads)
    return Placement(
        Nodes.of(list(NAMES[:nodes])), Groups.of(range(count), loads, [1.0] * count, [0] * count)
    )
