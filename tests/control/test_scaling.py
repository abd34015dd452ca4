"""Algorithm 1: how many nodes, and who holds what, in one answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.control.scaling import Scale, adapt
from skewless.errors import SettingError
from skewless.model.placement import Groups, Nodes, Placement, PlacementLimits
from skewless.policies import groups

GREEDY = groups.get("greedy")


def even(nodes: Nodes, load: float, per_node: int = 4) -> Placement:
    """As many groups on each node, each of the same load."""
    count = per_node * len(nodes)
    where = [i % len(nodes) for i in range(count)]
    return Placement(nodes, Groups.of(range(count), [load] * count, [1.0] * count, where))


def test_a_load_at_the_target_changes_no_number_of_nodes() -> None:
    answer = adapt(even(Nodes.of(["a", "b"]), 17), PlacementLimits(), Scale(max=4), GREEDY)
    assert (answer.ended, answer.added, answer.leaving, answer.plan.moves) == ((), (), (), {})


def test_an_uneven_load_is_levelled_and_adds_no_node() -> None:
    nodes = Nodes.of(["a", "b"])
    placement = Placement(nodes, Groups.of(range(4), [30.0] * 4, [1.0] * 4, [0] * 4))
    answer = adapt(placement, PlacementLimits(), Scale(max=4), GREEDY)
    assert answer.added == ()
    assert answer.plan.distance_after == 0


def test_nodes_are_added_up_to_the_target_and_the_plan_fills_them() -> None:
    answer = adapt(even(Nodes.of(["a", "b"]), 35), PlacementLimits(), Scale(max=8), GREEDY)
    assert answer.added == ("new-1", "new-2")
    assert answer.plan.placement.node_loads(answer.plan.targets).tolist() == [70] * 4


def test_no_more_nodes_are_added_than_allowed() -> None:
    answer = adapt(even(Nodes.of(["a", "b"]), 90), PlacementLimits(), Scale(max=3), GREEDY)
    assert answer.added == ("new-1",)


def test_nodes_that_are_not_needed_are_emptied_then_ended() -> None:
    nodes = Nodes.of(["a", "b", "c", "d"])
    first = adapt(even(nodes, 5), PlacementLimits(), Scale(min=2, max=8), GREEDY)
    assert first.leaving == ("a", "b")
    assert first.plan.placement.stranded(first.plan.targets) == 0
    emptied = Placement(
        first.plan.placement.nodes,
        Groups.of(range(16), [5.0] * 16, [1.0] * 16, first.plan.targets),
    )
    second = adapt(emptied, PlacementLimits(), Scale(min=2, max=8), GREEDY)
    assert second.ended == ("a", "b")
    assert (second.added, second.leaving, second.plan.moves) == ((), (), {})


def test_a_node_with_groups_left_is_not_ended() -> None:
    nodes = Nodes.of(["a", "b", "c"], leaving=("c",))
    answer = adapt(even(nodes, 15), PlacementLimits(max_bytes=1), Scale(), GREEDY)
    assert answer.ended == ()
    assert len(answer.plan.moves) == 1


def test_nodes_are_kept_if_the_others_could_not_be_levelled_below_the_target() -> None:
    nodes = Nodes.of(["a", "b", "c"])
    placement = Placement(nodes, Groups.of(range(3), [50.0, 50.0, 10.0], [1.0] * 3, [0, 1, 2]))
    kept = adapt(placement, PlacementLimits(), Scale(target=0.56, slack=0.0), GREEDY)
    assert kept.leaving == ()
    with_room = adapt(placement, PlacementLimits(), Scale(target=0.65, slack=0.0), GREEDY)
    assert with_room.leaving == ("c",)


def test_more_nodes_than_allowed_become_fewer_whatever_the_load() -> None:
    answer = adapt(even(Nodes.of(["a", "b", "c"]), 30), PlacementLimits(), Scale(max=2), GREEDY)
    assert len(answer.leaving) == 1


@given(load=st.floats(0, 60), count=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_a_load_that_stands_still_does_not_scale_to_and_fro(load: float, count: int) -> None:
    """Whatever the first answer does, the second, on the nodes that it leaves, changes no number again."""
    placement, scale = even(Nodes.of([f"n{i}" for i in range(count)]), load), Scale(min=1, max=6)
    first = adapt(placement, PlacementLimits(), scale, GREEDY)
    after = first.plan.placement
    stays = [name for name in after.nodes.names if name not in (*first.ended, *first.leaving)]
    at = [stays.index(after.nodes.names[target]) for target in first.plan.targets.tolist()]
    groups_after = Groups.of(after.groups.ids, after.loads, after.groups.state_bytes, at)
    second = adapt(Placement(Nodes.of(stays), groups_after), PlacementLimits(), scale, GREEDY)
    assert (second.added, second.leaving) == ((), ())


def test_a_scale_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(SettingError, match="slack"):
        Scale(target=0.5, slack=0.6)
