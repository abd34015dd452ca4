"""One battery over every policy: whatever the input, a plan is valid, within its limits, repeatable and never
harmful. `pytest tests/policies/test_battery.py --policy my_module:my_policy` runs it over yours, too. How
good our own policies are is asked in `test_quality.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instances import Instance, instances, loads_under, on_one_partition
from skewless import policies
from skewless.errors import PolicyError
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot, imbalance_of
from skewless.model.table import Table, diff
from skewless.policies import Limits

EVERY = policies.names()
FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

every_policy = pytest.mark.parametrize("name", EVERY)


def assert_tells_the_truth(plan: Plan, snapshot: Snapshot, table: Table) -> None:
    changes = {change.key_hash: change for change in diff(table, plan.table)}
    assert plan.moves.key_hashes.tolist() == sorted(changes)
    for key_hash, source, target in zip(
        plan.moves.key_hashes, plan.moves.sources, plan.moves.targets, strict=True
    ):
        assert changes[int(key_hash)].before == (source,)
        assert changes[int(key_hash)].after == (target,)
    sizes = dict(zip(snapshot.key_hashes.tolist(), snapshot.state_bytes.tolist(), strict=True))
    assert plan.bytes_moved == pytest.approx(sum(sizes.get(key_hash, 0.0) for key_hash in changes))
    assert plan.imbalance_before == pytest.approx(snapshot.imbalance)
    assert plan.imbalance_after == pytest.approx(imbalance_of(loads_under(snapshot, plan.table)), abs=1e-9)


@every_policy
@given(instance=instances())
@FAST
def test_a_plan_says_what_its_table_does(name: str, instance: Instance) -> None:
    snapshot = instance.snapshot()
    plan = policies.get(name)(snapshot, instance.table, instance.limits)
    assert_tells_the_truth(plan, snapshot, instance.table)


@every_policy
@given(instance=instances())
@FAST
def test_a_plan_keeps_its_limits_or_the_old_table(name: str, instance: Instance) -> None:
    plan = policies.get(name)(instance.snapshot(), instance.table, instance.limits)
    assert plan.bytes_moved <= instance.limits.max_bytes
    if plan.changes:
        assert len(plan.table) <= max(instance.limits.max_entries, len(instance.table))
        assert plan.table.epoch == instance.table.epoch + 1
    else:
        assert plan.table is instance.table
    met = (
        plan.imbalance_after <= instance.limits.max_imbalance + 1e-9
        and len(plan.table) <= instance.limits.max_entries
    )
    assert plan.met == met
    assert plan.met == (not plan.reasons)


@every_policy
@given(instance=instances())
@FAST
def test_a_plan_is_never_worse_than_its_input(name: str, instance: Instance) -> None:
    plan = policies.get(name)(instance.snapshot(), instance.table, instance.limits)
    assert plan.imbalance_after <= max(plan.imbalance_before, instance.limits.max_imbalance) + 1e-9


@every_policy
@given(instance=instances())
@FAST
def test_the_same_input_gives_the_same_plan_and_is_left_as_it_was(name: str, instance: Instance) -> None:
    snapshot, table = instance.snapshot(), Table.decode(instance.table.encode())
    first, second = (policies.get(name)(snapshot, instance.table, instance.limits) for _ in range(2))
    assert first.table == second.table
    assert (first.imbalance_before, first.imbalance_after) == (
        second.imbalance_before,
        second.imbalance_after,
    )
    assert (first.met, first.reasons) == (second.met, second.reasons)
    for field in ("key_hashes", "sources", "targets", "state_bytes"):
        assert getattr(first.moves, field).tolist() == getattr(second.moves, field).tolist()
    assert snapshot == instance.snapshot()
    assert instance.table == table


@every_policy
@given(instance=instances(), random=st.randoms(use_true_random=False))
@FAST
def test_the_order_of_the_keys_does_not_matter(name: str, instance: Instance, random: object) -> None:
    order = list(range(len(instance.key_hashes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first = policies.get(name)(instance.snapshot(), instance.table, instance.limits)
    second = policies.get(name)(instance.snapshot(order), instance.table, instance.limits)
    assert first.table == second.table
    assert first.reasons == second.reasons


@every_policy
def test_no_keys_at_all_is_level(name: str) -> None:
    table = Table(4)
    plan = policies.get(name)(Snapshot.of(table, [], []), table, Limits())
    assert plan.met
    assert not plan.changes


@every_policy
def test_one_partition_leaves_nothing_to_decide(name: str) -> None:
    snapshot, table = on_one_partition([5.0, 3.0, 1.0], 1)
    plan = policies.get(name)(snapshot, table, Limits(0.0))
    assert plan.met
    assert not plan.changes


@every_policy
def test_costs_of_zero_are_level(name: str) -> None:
    snapshot, table = on_one_partition([0.0] * 9, 3)
    plan = policies.get(name)(snapshot, table, Limits(0.0))
    assert plan.met
    assert not plan.changes


@every_policy
def test_a_table_for_other_partitions_or_of_another_epoch_is_refused(name: str) -> None:
    snapshot, table = on_one_partition([1.0, 1.0], 2)
    with pytest.raises(PolicyError, match="the table 3"):
        policies.get(name)(snapshot, Table(3), Limits())
    with pytest.raises(PolicyError, match="epoch 5"):
        policies.get(name)(snapshot, table.with_epoch(5), Limits())


@every_policy
@given(instance=instances())
@settings(FAST, max_examples=20)
def test_splits_are_left_alone_and_count_as_entries(name: str, instance: Instance) -> None:
    n = instance.table.partitions + 1
    table = Table(n, {1000: (0, n - 1)}, epoch=3)
    snapshot = replace(instance, table=table, remainders=(*instance.remainders, 0.0)).snapshot()
    plan = policies.get(name)(snapshot, table, replace(instance.limits, max_entries=3))
    assert plan.table.targets(1000) == (0, n - 1)
    assert len(plan.table) <= 3


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="mixed, mixed_bf, readj"):
        policies.get("greedy")
