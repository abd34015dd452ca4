from __future__ import annotations

import numpy as np
import pytest

from skewless.errors import PolicyError, SettingError
from skewless.model.placement import Flows, Groups, Nodes, Placement, PlacementPlan


def three_nodes() -> Placement:
    """a holds 30 and 10, b holds 20, c is leaving and holds 15; what d held is nowhere."""
    nodes = Nodes.of(["a", "b", "c", "d"], [1, 2, 1, 1], dead=("d",), leaving=("c",))
    groups = Groups.of(range(5), [30, 10, 20, 15, 25], [1, 2, 4, 8, 16], [0, 0, 1, 2, 3])
    return Placement(nodes, groups, Flows.of([0, 0, 2], [1, 2, 3], [6, 3, 1]))


def test_the_mean_counts_all_load_and_only_the_nodes_that_stay() -> None:
    assert three_nodes().mean == pytest.approx(100 / 3)


def test_the_distance_looks_at_the_nodes_that_stay_each_by_its_capacity() -> None:
    placement = three_nodes()
    assert placement.node_loads(placement.sources).tolist() == [40, 10, 15, 0]
    assert placement.distance(placement.sources) == pytest.approx(100 / 3 - 10)


def test_the_state_of_a_dead_node_costs_no_budget_and_all_other_moves_do() -> None:
    placement = three_nodes()
    assert placement.sources.tolist() == [0, 0, 1, 2, -1]
    assert placement.bytes_moved(np.array([0, 0, 1, 2, 1])) == 0
    assert placement.bytes_moved(np.array([1, 0, 1, 0, 1])) == 1 + 8


def test_groups_on_a_leaving_node_are_stranded() -> None:
    placement = three_nodes()
    assert placement.stranded(placement.sources) == 1
    assert placement.stranded(np.array([0, 0, 1, 1, 1])) == 0


def test_collocation_is_the_share_of_the_flows_that_stays_on_one_node() -> None:
    placement = three_nodes()
    assert placement.collocation(placement.sources) == pytest.approx(0.6)
    assert placement.collocation(np.array([0, 0, 0, 0, 0])) == 1


def test_groups_are_sorted_by_id_whatever_their_order() -> None:
    groups = Groups.of([7, 3], [1, 2], [10, 20], [0, 1], operators=[5, 6])
    assert groups.ids.tolist() == [3, 7]
    assert (groups.loads[0].tolist(), groups.state_bytes.tolist()) == ([2, 1], [20, 10])
    assert (groups.nodes.tolist(), groups.operators.tolist()) == ([1, 0], [6, 5])


def test_a_plan_names_the_groups_that_move_by_id_and_node() -> None:
    placement = three_nodes()
    plan = PlacementPlan(placement, np.array([0, 1, 1, 1, 1]), 0.0)
    assert plan.moves == {1: "b", 3: "b", 4: "b"}
    assert plan.bytes_moved == 10
    with pytest.raises(PolicyError, match="one target for each group"):
        PlacementPlan(placement, np.array([0]), 0.0)


def test_amounts_of_the_wrong_length_and_capacities_of_zero_are_refused() -> None:
    with pytest.raises(SettingError, match="one number each"):
        Groups.of([0, 1], [1], [1, 1], [0, 0])
    with pytest.raises(SettingError, match="capacity"):
        Nodes.of(["a"], [0.0])
    with pytest.raises(SettingError, match="two nodes"):
        Nodes.of(["a", "a"])
