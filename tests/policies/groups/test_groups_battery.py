"""One battery over every placement policy: whatever the input, a plan is valid, within its budget, repeatable
and never harmful."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placements import Case, cases, on_one_node
from skewless.errors import PolicyError, SettingError
from skewless.model.placement import Groups, Nodes, Placement, PlacementLimits, PlacementPlan
from skewless.policies import groups
from skewless.policies.groups import graph
from skewless.policies.groups.milp import LEVEL_ENOUGH, MISSING

EVERY = groups.names()
LEVELLING = ("albic", "greedy", "milp")
FAST = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EVER = PlacementLimits(seconds=60)  # nothing here may depend on how fast the machine is

every_policy = pytest.mark.parametrize("name", EVERY)


def best_distance(placement: Placement, limits: PlacementLimits) -> float:
    """Brute force: the smallest load distance of all placements within the budget."""
    choices = itertools.product(placement.nodes.takers.tolist(), repeat=len(placement.loads))
    every = (np.array(choice) for choice in choices)
    return min(placement.distance(t) for t in every if placement.bytes_moved(t) <= limits.max_bytes)


@every_policy
@given(case=cases())
@FAST
def test_a_plan_gives_every_group_one_node_that_may_take_it_or_has_it(name: str, case: Case) -> None:
    placement = case.placement()
    targets = groups.get(name)(placement, case.limits).targets
    takers = set(placement.nodes.takers.tolist())
    for target, source in zip(targets.tolist(), placement.sources.tolist(), strict=True):
        assert target in takers or target == source
        assert not takers or target >= 0


@every_policy
@given(case=cases())
@FAST
def test_a_plan_keeps_its_budget_and_counts_it_right(name: str, case: Case) -> None:
    placement = case.placement()
    plan = groups.get(name)(placement, case.limits)
    by_hand = sum(
        placement.groups.state_bytes[k]
        for k in range(len(plan.targets))
        if placement.sources[k] >= 0 and plan.targets[k] != placement.sources[k]
    )
    assert plan.bytes_moved == pytest.approx(by_hand)
    assert plan.bytes_moved <= case.limits.max_bytes


@every_policy
@given(case=cases())
@FAST
def test_a_plan_is_never_worse_than_its_input(name: str, case: Case) -> None:
    placement = case.placement()
    plan = groups.get(name)(placement, case.limits)
    stay = groups.seat(placement, case.limits)
    assert placement.stranded(plan.targets) <= placement.stranded(stay)
    allowed = case.limits.max_distance if name in ("albic", "cola") else 0.0
    assert plan.distance_after <= max(placement.distance(stay), allowed) + 1e-6


@every_policy
@given(case=cases())
@FAST
def test_the_same_input_gives_the_same_plan_and_is_left_as_it_was(name: str, case: Case) -> None:
    placement, untouched = case.placement(), case.placement()
    first, second = (groups.get(name)(placement, case.limits) for _ in range(2))
    assert first.targets.tolist() == second.targets.tolist()
    assert first.reasons == second.reasons
    assert placement.groups.nodes.tolist() == untouched.groups.nodes.tolist()
    assert placement.groups.loads.tolist() == untouched.groups.loads.tolist()


@every_policy
@given(case=cases(), random=st.randoms(use_true_random=False))
@FAST
def test_the_order_of_the_groups_does_not_matter(name: str, case: Case, random: object) -> None:
    order = list(range(len(case.loads)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first = groups.get(name)(case.placement(), case.limits)
    second = groups.get(name)(case.placement(order), case.limits)
    assert first.moves == second.moves


@given(
    loads=st.lists(st.integers(0, 20).map(float), min_size=1, max_size=7),
    state=st.lists(st.integers(0, 5).map(float), min_size=7, max_size=7),
    where=st.lists(st.integers(0, 2), min_size=7, max_size=7),
    max_bytes=st.sampled_from([0.0, 3.0, 8.0, float("inf")]),
)
@FAST
def test_the_program_finds_the_optimum_of_small_instances(
    loads: list[float], state: list[float], where: list[int], max_bytes: float
) -> None:
    count, limits = len(loads), PlacementLimits(max_bytes, seconds=60)
    placement = Placement(
        Nodes.of(["a", "b", "c"]), Groups.of(range(count), loads, state[:count], where[:count])
    )
    near = best_distance(placement, limits) + 2 * LEVEL_ENOUGH * placement.mean + 1e-6
    assert groups.get("milp")(placement, limits).distance_after <= near


@pytest.mark.parametrize("name", LEVELLING)
def test_a_node_that_leaves_is_emptied_and_the_rest_is_level(name: str) -> None:
    nodes = Nodes.of(["a", "b", "c"], leaving=("b",))
    placement = Placement(nodes, Groups.of(range(6), [10.0] * 6, [1.0] * 6, [0, 0, 1, 1, 2, 2]))
    plan = groups.get(name)(placement, EVER)
    assert sorted(plan.moves) == [2, 3]
    assert plan.distance_after == 0


@every_policy
def test_with_too_small_a_budget_a_leaving_node_is_emptied_in_steps(name: str) -> None:
    nodes = Nodes.of(["a", "b"], leaving=("a",))
    where, steps = [0] * 5, 0
    while 0 in where:
        placement = Placement(nodes, Groups.of(range(5), [1.0] * 5, [4.0] * 5, where))
        plan = groups.get(name)(placement, PlacementLimits(max_bytes=8, seconds=60))
        assert len(plan.moves) == min(2, where.count(0))
        where, steps = plan.targets.tolist(), steps + 1
        assert bool(plan.reasons) == (0 in where)
    assert steps == 3


@every_policy
def test_the_groups_of_a_dead_node_are_seated_even_without_a_budget(name: str) -> None:
    nodes = Nodes.of(["a", "b", "c"], dead=("c",))
    placement = Placement(nodes, Groups.of(range(4), [5.0] * 4, [9.0] * 4, [0, 1, 2, 2]))
    plan = groups.get(name)(placement, PlacementLimits(max_bytes=0, seconds=60))
    assert sorted(plan.moves) == [2, 3]
    assert plan.distance_after == 0
    assert plan.bytes_moved == 0


@every_policy
def test_if_no_node_may_take_a_group_all_stays_and_the_plan_says_so(name: str) -> None:
    nodes = Nodes.of(["a", "b"], dead=("a",), leaving=("b",))
    plan = groups.get(name)(Placement(nodes, Groups.of([0, 1], [1, 1], [1, 1], [0, 1])), EVER)
    assert plan.moves == {}
    assert "no node may take a group" in plan.reasons[-1]


@every_policy
@pytest.mark.parametrize("loads", [[], [0.0] * 5, [7.0]])
def test_nothing_to_level_means_nothing_to_move(name: str, loads: list[float]) -> None:
    assert groups.get(name)(on_one_node(loads, 1), EVER).moves == {}
    if sum(loads) == 0 and name != "cola":
        assert groups.get(name)(on_one_node(loads, 3), EVER).moves == {}


@pytest.mark.parametrize("name", LEVELLING)
def test_equal_groups_are_dealt_out_evenly(name: str) -> None:
    plan = groups.get(name)(on_one_node([10.0] * 12, 4), EVER)
    assert plan.distance_after == 0
    assert len(plan.moves) == 9


@pytest.mark.parametrize("name", LEVELLING)
def test_beside_a_giant_the_other_nodes_carry_the_rest(name: str) -> None:
    plan = groups.get(name)(on_one_node([90.0, 5.0, 5.0, 5.0, 5.0], 3), EVER)
    assert sorted(plan.placement.node_loads(plan.targets).tolist()) == [10, 10, 90]


@pytest.mark.parametrize("name", LEVELLING)
def test_a_node_of_twice_the_capacity_gets_twice_the_load(name: str) -> None:
    nodes = Nodes.of(["a", "b"], [2.0, 1.0])
    plan = groups.get(name)(Placement(nodes, Groups.of(range(6), [10.0] * 6, [1] * 6, [1] * 6)), EVER)
    assert plan.placement.node_loads(plan.targets).tolist() == [20, 20]


def test_the_resource_that_is_used_most_is_the_one_that_is_levelled() -> None:
    loads = {"cpu": [10.0, 10.0, 0.0, 0.0], "network": [0.0, 0.0, 40.0, 40.0]}
    placement = Placement(Nodes.of(["a", "b"]), Groups.of(range(4), loads, [1] * 4, [0, 1, 0, 0]))
    assert placement.bottleneck == "network"
    plan = groups.get("milp")(placement, EVER)
    assert plan.targets[2] != plan.targets[3]


@pytest.mark.parametrize("name", ["albic", "cola", "milp"])
def test_without_its_extra_the_greedy_serves_and_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    placement = on_one_node([30.0, 20.0, 10.0], 2)
    plan = groups.get(name)(placement, EVER)
    assert plan.targets.tolist() == groups.get("greedy")(placement, EVER).targets.tolist()
    assert plan.reasons in ((MISSING,), (graph.MISSING,))


@pytest.fixture
def cleared() -> Iterator[None]:
    yield
    groups._POLICIES.pop("mine", None)


@pytest.mark.usefixtures("cleared")
def test_a_policy_of_ones_own_is_known_by_its_name_which_is_given_once() -> None:
    def stay(placement: Placement, limits: PlacementLimits) -> PlacementPlan:
        return groups.settle(placement, limits, placement.sources, 0.0)

    groups.register("mine", stay)
    assert groups.get("mine") is stay
    with pytest.raises(PolicyError, match="already"):
        groups.register("mine", groups.get("milp"))
    with pytest.raises(PolicyError, match="Give a function"):
        groups.register("other", "milp")  # type: ignore[arg-type]


def test_a_placement_that_contradicts_itself_is_refused() -> None:
    nodes = Nodes.of(["a"])
    with pytest.raises(SettingError, match="not listed: there are 1"):
        Placement(nodes, Groups.of([0], [1], [1], [1]))
    with pytest.raises(SettingError, match="one id"):
        Groups.of([0, 0], [1, 1], [1, 1], [0, 0])
    with pytest.raises(SettingError, match="negative"):
        Groups.of([0], [-1], [1], [0])
    with pytest.raises(SettingError, match="'b' is not among"):
        Nodes.of(["a"], dead=("b",))
