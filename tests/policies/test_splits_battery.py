"""One battery over every split policy: whatever the input, its plan is valid, within its limits, repeatable
and never harmful, and says what its table does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instances import Instance, instances
from skewless import policies
from skewless.errors import PolicyError
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.split import Split
from skewless.model.table import Table, diff
from skewless.policies import Limits, splits
from skewless.policies.splits.place import split_and_move
from skewless.policies.splits.take_back import take_splits_back

EVERY = splits.names()
FAST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

every_policy = pytest.mark.parametrize("name", EVERY)


@st.composite
def joins(draw: st.DrawFn) -> tuple[Instance, tuple[str, tuple[float, ...]]]:
    """An instance of a join: which side may be split, how much of each key is on its right, and a table that
    splits some keys already."""
    instance = draw(instances())
    sides = draw(st.sampled_from(["left", "right", "either"]))
    share = st.sampled_from([0.0, 0.02, 0.5, 0.97, 1.0])
    rights = draw(st.lists(share, min_size=len(instance.costs), max_size=len(instance.costs)))
    n = instance.table.partitions
    entries: dict[int, object] = dict(instance.table)
    for key_hash in draw(st.lists(st.sampled_from([*instance.key_hashes, 90]), max_size=3, unique=True)):
        if n > 1:
            width = draw(st.integers(2, n))
            targets = draw(st.permutations(range(n)))[:width]
            side = sides if sides != "either" else draw(st.sampled_from(["left", "right"]))
            entries[key_hash] = Split(tuple(targets), width if side == "left" else 1)
    table = Table(n, entries, epoch=3)  # type: ignore[arg-type]
    return replace(instance, table=table), (sides, tuple(rights))


def snapshot_of(
    instance: Instance, join: tuple[str, tuple[float, ...]], order: list[int] | None = None
) -> Snapshot:
    at = order if order is not None else list(range(len(instance.key_hashes)))
    pick = [np.array(v)[at] if at else np.zeros(0) for v in (instance.key_hashes, instance.costs)]
    rest = [np.array(v)[at] if at else np.zeros(0) for v in (instance.state_bytes, join[1])]
    # as measured: remainders hold the tracked keys' cells only by what `of` adds
    return Snapshot.of(
        instance.table, pick[0].astype(np.int64), pick[1], rest[0], remainder_costs=instance.remainders,
        sides=join[0], right_shares=rest[1],
    )  # fmt: skip


def plan_of(name: str, instance: Instance, join: tuple[str, tuple[float, ...]]) -> tuple[Plan, Snapshot]:
    snapshot = snapshot_of(instance, join)
    plan = split_and_move(snapshot, instance.table, instance.limits, splits.get(name), policies.get("mixed"))
    return plan, snapshot


def loads_by_hand(instance: Instance, join: tuple[str, tuple[float, ...]], table: Table) -> np.ndarray:
    """Key by key and cell by cell."""
    loads = np.array(instance.remainders, dtype=float)
    for key_hash, cost, right in zip(instance.key_hashes, instance.costs, join[1], strict=True):
        grid = table.split_of(key_hash) or Split(table.targets(key_hash))
        for row in range(grid.left_width):
            for column in range(grid.right_width):
                cell = grid.targets[row * grid.right_width + column]
                loads[cell] += cost * (1 - right) / grid.left_width + cost * right / grid.right_width
    return loads


@every_policy
@given(drawn=joins())
@FAST
def test_a_plan_says_what_its_table_does(name: str, drawn: tuple) -> None:
    instance, join = drawn
    plan, snapshot = plan_of(name, instance, join)
    before, after = (loads_by_hand(instance, join, table) for table in (instance.table, plan.table))
    assert snapshot.loads == pytest.approx(before)
    assert snapshot.loads_under(instance.table, plan.table) == pytest.approx(after, abs=1e-6)
    changed = {change.key_hash for change in diff(instance.table, plan.table)}
    told = [*plan.moves.key_hashes.tolist(), *(split.key_hash for split in plan.split_changes)]
    assert sorted(told) == sorted(changed)
    for split in plan.splits:
        assert split.after.targets == plan.table.targets(split.key_hash)
        assert split.before.targets == instance.table.targets(split.key_hash)
    mean = after.mean()
    assert plan.imbalance_after == pytest.approx(after.max() / mean - 1 if mean else 0.0, abs=1e-6)


@every_policy
@given(drawn=joins())
@FAST
def test_a_plan_splits_only_the_side_that_may_be_and_over_distinct_partitions(
    name: str, drawn: tuple
) -> None:
    instance, join = drawn
    plan, _ = plan_of(name, instance, join)
    for key_hash in plan.table.split_hashes.tolist():
        grid = plan.table.split_of(key_hash)
        assert grid is not None
        assert len(set(grid.targets)) == len(grid.targets) <= instance.table.partitions
        assert join[0] == "either" or grid.side == join[0]


@every_policy
@given(drawn=joins())
@FAST
def test_a_plan_keeps_its_limits_or_the_old_table(name: str, drawn: tuple) -> None:
    instance, join = drawn
    plan, _ = plan_of(name, instance, join)
    assert plan.bytes_moved <= instance.limits.max_bytes + 1e-6
    assert len(plan.table) <= max(instance.limits.max_entries, len(instance.table))
    if plan.changes:
        assert plan.table.epoch == instance.table.epoch + 1
    else:
        assert plan.table is instance.table


@every_policy
@given(drawn=joins())
@FAST
def test_no_plan_takes_longer_than_its_input(name: str, drawn: tuple) -> None:
    """Than what a move policy alone makes of it, which may fill partitions up to max_imbalance."""
    instance, join = drawn
    plan, snapshot = plan_of(name, instance, join)
    plain = policies.get("mixed")(snapshot, instance.table, instance.limits)
    peaks = [loads_by_hand(instance, join, table).max() for table in (plain.table, plan.table)]
    assert peaks[1] <= peaks[0] * (1 + 1e-9) + 1e-9


@every_policy
@given(drawn=joins(), random=st.randoms(use_true_random=False))
@FAST
def test_the_same_keys_in_any_order_give_the_same_plan_and_are_left_as_they_were(
    name: str, drawn: tuple, random: object
) -> None:
    instance, join = drawn
    order = list(range(len(instance.key_hashes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    table = Table.decode(instance.table.encode())
    first, _ = plan_of(name, instance, join)
    policy, moves = splits.get(name), policies.get("mixed")
    second = split_and_move(
        snapshot_of(instance, join, order), instance.table, instance.limits, policy, moves
    )
    assert first.table == second.table
    assert first.reasons == second.reasons
    assert instance.table == table


@given(drawn=joins(), tolerance=st.sampled_from([0.0, 0.1, 0.5]))
@settings(FAST, max_examples=150)
def test_what_is_taken_back_stays_level_and_within_the_bytes(drawn: tuple, tolerance: float) -> None:
    instance, join = drawn
    snapshot = snapshot_of(instance, join)
    limits = replace(instance.limits, max_imbalance=tolerance)
    plan = take_splits_back(snapshot, instance.table, limits)
    if plan is None:
        return
    assert plan.changes
    assert plan.bytes_moved <= limits.max_bytes + 1e-6
    before, after = (loads_by_hand(instance, join, table) for table in (instance.table, plan.table))
    assert after.sum() <= before.sum() * (1 + 1e-9), "a narrower split has fewer replicas"
    assert snapshot.loads_under(instance.table, plan.table) == pytest.approx(after, abs=1e-6)
    assert after.max() <= max(before.max(), (1 + tolerance) * before.mean()) * (1 + 1e-6)
    for split in plan.split_changes:
        assert len(split.after) < len(split.before)
        assert set(split.after.targets) <= set(split.before.targets)


def hot(share: float, partitions: int = 8, right: float = 0.0, sides: str = "left") -> Snapshot:
    """One key with this share of the rows; the rest are a hundred light ones."""
    keys = 100
    costs = [share, *[(1 - share) / keys] * keys]
    rights = [right, *[0.0] * keys]
    return Snapshot.of(Table(partitions), range(keys + 1), costs, costs, sides=sides, right_shares=rights)


@every_policy
def test_no_keys_at_all_is_level(name: str) -> None:
    table = Table(4)
    snapshot = Snapshot.of(table, [], [], sides="left")
    plan = split_and_move(snapshot, table, Limits(), splits.get(name), policies.get("mixed"))
    assert not plan.changes


@every_policy
def test_one_partition_leaves_nothing_to_split(name: str) -> None:
    snapshot = hot(0.9, partitions=1)
    plan = split_and_move(snapshot, Table(1), Limits(), splits.get(name), policies.get("mixed"))
    assert not plan.changes


@every_policy
def test_costs_of_zero_are_level(name: str) -> None:
    table = Table(3)
    snapshot = Snapshot.of(table, [0, 3, 6], [0.0, 0.0, 0.0], sides="left")
    assert not split_and_move(snapshot, table, Limits(), splits.get(name), policies.get("mixed")).changes


@every_policy
def test_equal_keys_that_moves_can_level_are_not_split(name: str) -> None:
    table = Table(4)
    snapshot = Snapshot.of(table, range(0, 160, 4), [1.0] * 40, sides="left")
    plan = split_and_move(snapshot, table, Limits(), splits.get(name), policies.get("mixed"))
    assert plan.imbalance_after <= 0.08
    assert not plan.splits


@every_policy
def test_a_giant_key_is_split_and_the_batch_ends_sooner(name: str) -> None:
    snapshot = hot(0.6)
    plan = split_and_move(snapshot, Table(8), Limits(), splits.get(name), policies.get("mixed"))
    [split] = plan.splits
    assert split.after.side == "left"
    assert split.gain > 0
    peak = snapshot.loads_under(Table(8), plan.table).max()
    assert peak <= (0.31 if name == "pkg" else 0.16), "two partitions are all that PKG gives"


@every_policy
def test_a_key_whose_other_side_is_as_heavy_is_not_split(name: str) -> None:
    """Only the left may be split, and nearly all rows are on the right: copies would cost more than they
    spare."""
    snapshot = hot(0.6, right=0.99)
    plan = split_and_move(snapshot, Table(8), Limits(), splits.get(name), policies.get("mixed"))
    assert not plan.splits


@every_policy
def test_where_either_side_may_be_split_it_is_the_one_with_more_rows(name: str) -> None:
    table = Table(8)
    for right, side in ((0.05, "left"), (0.95, "right")):
        snapshot = hot(0.6, right=right, sides="either")
        plan = split_and_move(snapshot, table, Limits(), splits.get(name), policies.get("mixed"))
        assert [split.after.side for split in plan.splits] == [side]


def test_a_grid_is_made_where_both_sides_are_hot() -> None:
    snapshot = hot(0.8, right=0.5, sides="either", partitions=16)
    plan = split_and_move(snapshot, Table(16), Limits(), splits.get("auto"), policies.get("mixed"))
    [split] = plan.splits
    assert split.after.side == "both"
    assert len(set(split.after.targets)) == split.after.left_width * split.after.right_width


@every_policy
def test_nothing_is_split_where_nothing_may_be(name: str) -> None:
    snapshot = hot(0.6, sides="")
    plan = split_and_move(snapshot, Table(8), Limits(), splits.get(name), policies.get("mixed"))
    assert not plan.table.has_splits


@every_policy
def test_growth_adds_targets_and_keeps_those_there_are(name: str) -> None:
    table = Table(8, {0: (0, 3)}, epoch=1)
    costs = [0.8, *[0.002] * 100]
    snapshot = Snapshot.of(table, range(101), costs, costs, sides="left")
    plan = split_and_move(snapshot, table, Limits(), splits.get(name), policies.get("mixed"))
    assert plan.table.targets(0)[:2] == (0, 3)
    assert len(plan.table.targets(0)) > 2 or name == "pkg"


def test_a_cold_split_goes_home_and_a_hot_one_stays() -> None:
    table = Table(4, {0: (0, 1, 2), 1: (1, 3)}, epoch=1)
    level = [7.0, 3.0, 9.0, 5.0]
    snapshot = Snapshot.of(table, [0, 1], [3.0, 8.0], remainder_costs=level, sides="left")
    plan = take_splits_back(snapshot, table, Limits(max_imbalance=0.2))
    assert plan is not None
    assert plan.table == Table(4, {1: (1, 3)}, epoch=2)


def test_a_user_s_widths_are_checked() -> None:
    table = Table(8)
    bad = splits.SplitPolicy("bad", lambda seen: np.ones(3))  # type: ignore[arg-type, return-value]
    with pytest.raises(PolicyError, match="split policy 'bad' gave widths of shape"):
        split_and_move(hot(0.6), table, Limits(), bad, policies.get("mixed"))
    wide = splits.SplitPolicy("wide", lambda seen: np.full(len(seen.key_hashes), 99))
    plan = split_and_move(hot(0.6), table, Limits(), wide, policies.get("mixed"))
    assert all(len(split.after) <= 8 for split in plan.splits)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(PolicyError, match="aj_stream, auto, d_choices"):
        splits.get("wide")
