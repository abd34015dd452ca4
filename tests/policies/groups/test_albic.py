"""The four steps of ALBIC, each by itself."""

from __future__ import annotations

import numpy as np
import pytest

from skewless.model.placement import Flows, Groups, Nodes, Placement, PlacementLimits
from skewless.policies import groups
from skewless.policies.groups.albic import kept_together, next_pair, worth_it

pytest.importorskip("pymetis")
pytest.importorskip("highspy")

PATIENT = PlacementLimits(max_distance=100, max_part=10, seconds=60)


def placed(
    where: list[int], flows: list[tuple[int, int, float]], loads: list[float] | None = None
) -> Placement:
    """As many groups of a second operator as of a first, on three nodes."""
    count = len(where)
    kinds = [0] * (count // 2) + [1] * (count - count // 2)
    held = Groups.of(range(count), loads or [10.0] * count, [1.0] * count, where, kinds)
    return Placement(Nodes.of(["a", "b", "c"]), held, Flows.of(*zip(*flows, strict=True)))


def test_step_1_a_flow_counts_if_it_exceeds_the_average_over_all_groups_downstream() -> None:
    flows = [(0, 3, 9.0), (0, 4, 1.0), (1, 3, 4.0), (1, 4, 4.0), (1, 5, 4.0), (2, 5, 6.0)]
    placement = placed([0, 1, 2, 0, 1, 2], flows)
    assert worth_it(placement, PlacementLimits(score_factor=1.5)).tolist() == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    assert worth_it(placement, PlacementLimits(score_factor=2.9)).tolist() == [False] * 5 + [True]


def test_step_2_pairs_on_one_node_become_one_set_and_pairs_apart_do_not() -> None:
    placement = placed([0, 0, 1, 0, 0, 2], [(0, 3, 9.0), (1, 3, 9.0), (2, 5, 9.0)])
    units = kept_together(placement, PATIENT, np.ones(3, dtype=bool), max_part=100)
    assert units.tolist() == [0, 0, 2, 0, 4, 5]


def test_step_2_a_set_that_is_too_heavy_is_cut_where_little_flows() -> None:
    flows = [(0, 2, 100.0), (1, 3, 100.0), (0, 3, 1.0)]
    placement = placed([0, 0, 0, 0], flows)
    units = kept_together(placement, PATIENT, np.ones(3, dtype=bool), max_part=20)
    assert units[0] == units[2] != units[1] == units[3]
    by_cost = PlacementLimits(max_bytes=2, max_part=10)
    assert kept_together(placement, by_cost, np.ones(3, dtype=bool), max_part=1000).tolist() == units.tolist()


def chosen(placement: Placement, limits: PlacementLimits = PATIENT) -> tuple[list[int], int] | None:
    worth = np.ones(len(placement.flows), dtype=bool)
    units = kept_together(placement, limits, worth, limits.max_part * placement.mean)
    pair = next_pair(placement, limits, worth, units)
    return None if pair is None else (pair[0].tolist(), pair[1])


def test_step_3_the_largest_flow_between_nodes_comes_first_and_meets_where_less_is_done() -> None:
    placement = placed([0, 1, 1, 2], [(0, 2, 5.0), (1, 3, 9.0)], [10.0, 30.0, 10.0, 20.0])
    assert chosen(placement) == ([1, 3], 2)  # b carries 40, c 20


def test_step_3_one_that_is_in_a_set_stays_and_the_other_comes() -> None:
    placement = placed([0, 1, 0, 0], [(0, 2, 5.0), (1, 2, 9.0)])
    assert chosen(placement) == ([0, 1, 2], 0)  # though b carries less


def test_step_3_two_sets_meet_on_the_lighter_node_as_a_whole() -> None:
    placement = placed([0, 1, 0, 1], [(0, 2, 5.0), (1, 3, 5.0), (0, 3, 4.0)], [10.0, 20.0, 10.0, 20.0])
    assert chosen(placement) == ([0, 1, 2, 3], 0)


def test_step_3_a_pair_that_the_budget_cannot_bring_together_is_passed_over() -> None:
    held = Groups.of(range(4), [10.0] * 4, [50.0, 1.0, 50.0, 1.0], [0, 1, 2, 2], [0, 0, 1, 1])
    placement = Placement(Nodes.of(["a", "b", "c"]), held, Flows.of([0, 1], [2, 3], [9.0, 5.0]))
    assert chosen(placement, PlacementLimits(max_bytes=10, max_part=10)) == ([1, 3], 1)


def test_step_4_what_would_stand_too_unevenly_is_levelled_instead() -> None:
    placement = placed([0, 1, 2, 1], [(0, 2, 9.0)], [50.0, 50.0, 50.0, 0.0])
    strict = PlacementLimits(max_distance=5, max_part=10, seconds=60)
    assert groups.get("albic")(placement, strict).moves == {}
    assert len(groups.get("albic")(placement, PATIENT).moves) == 1
