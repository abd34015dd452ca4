from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skewless.control.controller import Controller, Decision
from skewless.control.pace import Pace
from skewless.control.swap_cost import SwapCost
from skewless.control.troubles import KEPT_KINDS
from skewless.errors import PolicyError, SettingError
from skewless.model.plan import Moves, Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits
from skewless.policies.mixed import mixed

SKEWED = {0: 40.0, 2: 40.0, 4: 10.0, 6: 10.0}  # all at home in partition 0 of 2
LEVEL = {0: 40.0, 1: 40.0, 4: 10.0, 5: 10.0}
EAGER = Pace(patience=1, calm=2, cooldown_seconds=10)


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Stream:
    """A controller with a clock, fed one batch after the other under the table in force."""

    def __init__(self, pace: Pace = EAGER, table: Table | None = None, **options: object) -> None:
        self.clock = Clock()
        self.batch = 0
        table = Table(2) if table is None else table  # an empty table is false, so `or` would not do
        self.controller = Controller(table, pace=pace, clock=self.clock, **options)  # type: ignore[arg-type]

    def snapshot(self, costs: dict[int, float], state_bytes: float = 100.0) -> Snapshot:
        self.batch += 1
        sizes = [state_bytes] * len(costs)
        return Snapshot.of(
            self.controller.table, list(costs), list(costs.values()), sizes, batches=(self.batch,)
        )

    def see(self, costs: dict[int, float], state_bytes: float = 100.0) -> Decision:
        return self.controller.observe(self.snapshot(costs, state_bytes))

    def swap(self, costs: dict[int, float], state_bytes: float = 100.0, seconds: float = 0.1) -> Plan:
        decision = self.see(costs, state_bytes)
        assert decision.action == "swap", decision.why
        assert decision.plan is not None
        self.controller.finished(decision.plan.table.epoch, seconds)
        return decision.plan


def test_a_skewed_stream_is_levelled_and_the_status_says_so() -> None:
    stream = Stream()
    plan = stream.swap(SKEWED)
    assert stream.controller.table is plan.table
    stream.see(SKEWED)
    status = stream.controller.status
    assert (status.epoch, status.swaps, status.entries, status.bytes_moved) == (1, 1, 2, 200.0)
    assert status.last_swap is plan
    assert (plan.imbalance_before, plan.imbalance_after, status.realised) == (1.0, 0.0, 0.0)


def test_level_input_is_left_alone() -> None:
    stream = Stream()
    for _ in range(20):
        assert stream.see(LEVEL).action == "stay"
    assert stream.controller.status.why.startswith("level")


def test_one_bad_batch_is_not_enough_when_patience_is_two() -> None:
    stream = Stream(Pace(patience=2))
    actions = [stream.see(costs).action for costs in (SKEWED, LEVEL, SKEWED, SKEWED)]
    assert actions == ["stay", "stay", "stay", "swap"]


def test_plans_aim_below_the_imbalance_that_triggers() -> None:
    asked: list[Limits] = []

    def spy(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
        asked.append(limits)
        return mixed(snapshot, table, limits)

    Stream(Pace(patience=1, aim=0.25), policy=spy, limits=Limits(max_imbalance=0.2)).see(SKEWED)
    assert [limits.max_imbalance for limits in asked] == [0.05]


def test_nothing_is_planned_while_a_swap_is_unfinished() -> None:
    stream = Stream()
    assert stream.see(SKEWED).action == "swap"
    stream.clock.now += 1000
    assert stream.see(SKEWED).why.startswith("unfinished")
    stream.controller.failed(1, "executor lost")
    stream.clock.now += 1000
    assert stream.see(SKEWED).action == "swap"


def test_a_failed_swap_leaves_the_old_table_and_is_shown() -> None:
    stream = Stream()
    before = stream.controller.table
    stream.see(SKEWED)
    stream.controller.failed(1, "executor lost")
    assert stream.controller.table is before
    assert list(stream.controller.status.errors) == ["PolicyError: the swap to epoch 1 failed: executor lost"]
    assert stream.controller.status.swaps == 0


def test_a_swap_may_be_published_under_a_later_epoch() -> None:
    stream = Stream()
    stream.see(SKEWED)
    stream.controller.finished(7, seconds=0.1)
    assert stream.controller.table.epoch == stream.controller.status.epoch == 7


def test_a_table_published_by_hand_is_adopted() -> None:
    stream = Stream(Pace(patience=2))
    stream.see(SKEWED)
    by_hand = Table(2, {0: 1, 4: 1}, epoch=4)
    stream.controller.adopt(by_hand)
    assert (stream.controller.status.epoch, stream.controller.status.entries) == (4, 2)
    assert stream.see(SKEWED).why.startswith("level")
    hotter = {0: 40.0, 1: 40.0, 3: 40.0, 4: 40.0}
    assert [stream.see(hotter).action for _ in range(2)] == ["stay", "swap"]
    with pytest.raises(PolicyError, match="Report first how the swap ended"):
        stream.controller.adopt(Table(2))


def test_a_report_about_no_swap_is_refused() -> None:
    stream = Stream()
    with pytest.raises(PolicyError, match="no swap to epoch 1 is under way"):
        stream.controller.finished(1, seconds=0.1)
    stream.swap(SKEWED)
    with pytest.raises(PolicyError, match="no swap to epoch 1 is under way"):
        stream.controller.finished(1, seconds=0.1)


def test_after_a_swap_it_rests() -> None:
    stream = Stream()
    stream.swap(SKEWED)
    drifted = {1: 40.0, 3: 40.0, 5: 40.0}
    assert stream.see(drifted).why == "resting: 10 s left after the last swap"
    stream.clock.now += 10
    assert stream.see(drifted).action == "swap"


def test_a_swap_that_costs_more_than_it_gains_is_not_made() -> None:
    dear = SwapCost(seconds_per_giver=3000.0, seconds_per_byte=0.0)
    stream = Stream(cost=dear)
    assert stream.see(SKEWED).why == "too dear: 2500.00 s to gain over 50 batches, 3000.00 s to pay"
    stream = Stream(cost=SwapCost(seconds_per_giver=2000.0, seconds_per_byte=0.0))
    assert stream.see(SKEWED).action == "swap"


def test_imbalance_that_comes_back_at_once_is_paid_for_only_once_it_lasts() -> None:
    stream = Stream(
        Pace(patience=1, cooldown_seconds=0), cost=SwapCost(seconds_per_giver=150.0, seconds_per_byte=0.0)
    )
    stream.swap(SKEWED, seconds=150.0)
    drifted = {1: 40.0, 3: 40.0, 5: 20.0}
    decisions = [stream.see(drifted) for _ in range(4)]
    assert [decision.action for decision in decisions] == ["stay", "stay", "stay", "swap"]
    assert decisions[0].why.startswith("too dear: 40.00 s to gain over 1 batches")


def test_a_window_of_batches_counts_its_gain_for_each_batch() -> None:
    stream = Stream(cost=SwapCost(seconds_per_giver=3000.0))
    snapshot = Snapshot.of(Table(2), list(SKEWED), list(SKEWED.values()), batches=(1, 2, 3, 4, 5))
    assert stream.controller.observe(snapshot).why.startswith("too dear: 500.00 s to gain")


def test_what_swaps_cost_is_learned() -> None:
    stream = Stream(cost=SwapCost(seconds_per_giver=1.0, seconds_per_byte=0.0))
    stream.swap(SKEWED, seconds=10_000.0)
    stream.clock.now += 100
    assert stream.see({1: 40.0, 3: 40.0, 5: 40.0}).why.startswith("too dear")


def test_one_swap_keeps_its_byte_budget() -> None:
    stream = Stream(Pace(patience=1, swap_bytes=150))
    assert stream.swap(SKEWED).bytes_moved == 100
    assert Stream(Pace(patience=1)).swap(SKEWED).bytes_moved == 200


def test_the_swaps_of_an_hour_share_a_budget() -> None:
    stream = Stream(Pace(patience=1, calm=99, cooldown_seconds=0, hour_bytes=250))
    stream.swap(SKEWED)
    assert stream.swap({1: 40.0, 3: 40.0, 5: 40.0, 7: 40.0}, state_bytes=50).bytes_moved == 50
    drifted = {11: 40.0, 13: 40.0, 15: 40.0}
    assert stream.see(drifted).why.startswith("nothing better was found")
    stream.clock.now += 3600
    assert stream.see(drifted).action == "swap"


def test_when_keys_cool_the_table_goes_back_entry_by_entry() -> None:
    stream = Stream()
    stream.swap(SKEWED)
    assert len(stream.controller.table) == 2
    cooled = dict.fromkeys(SKEWED, 0.001) | {8: 50.0, 9: 50.0}
    for _ in range(10):
        stream.clock.now += 100
        decision = stream.see(cooled)
        if decision.action == "swap":
            assert decision.why.startswith("standing down")
            stream.controller.finished(stream.controller.table.epoch + 1, seconds=0.1)
    assert len(stream.controller.table) == 0
    assert stream.controller.status.swaps == 2


def test_entries_that_are_still_needed_are_not_taken_back() -> None:
    stream = Stream()
    stream.swap(SKEWED)
    for _ in range(10):
        stream.clock.now += 100
        assert stream.see(SKEWED).action == "stay"
    assert stream.controller.status.why == "standing down: level, and every one of 2 entries is needed"


def test_a_thousand_batches_without_data_change_nothing() -> None:
    stream = Stream()
    stream.swap(SKEWED)
    for _ in range(1000):
        stream.clock.now += 100
        assert stream.see({}).why.startswith("idle")
    assert len(stream.controller.table) == 2


def test_a_snapshot_that_comes_twice_or_late_is_not_counted() -> None:
    stream = Stream(Pace(patience=2))
    old = stream.snapshot(SKEWED)
    stream.controller.observe(old)
    assert stream.controller.observe(old).why == "old: batch 1 was seen already"
    late = Snapshot.of(Table(2, {1: 0}, epoch=9), list(SKEWED), list(SKEWED.values()), batches=(5,))
    assert stream.controller.observe(late).why == "late: epoch 9 routed this snapshot, epoch 0 is in force"
    foreign = Snapshot.of(Table(3), [0, 3], [1.0, 1.0], batches=(6,))
    assert stream.controller.observe(foreign).action == "stay"


def _raises(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
    raise ZeroDivisionError("a bug")


def _plan(table: Table, moves: Moves) -> Plan:
    return Plan(table, moves, 1.0, 0.0, seconds=0.0, met=True)


ONE_MOVE = Moves.of([0], [0], [1], [100.0])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (_raises, "ZeroDivisionError: a bug"),
        (lambda snapshot, table, limits: None, "PolicyError: the policy returned NoneType"),
        (
            lambda snapshot, table, limits: _plan(Table(3, {0: 1}, epoch=1), ONE_MOVE),
            "PolicyError: the plan's table has 3",
        ),
        (
            lambda snapshot, table, limits: _plan(Table(2, {0: 1}), ONE_MOVE),
            "PolicyError: the plan's table has epoch 0",
        ),
        (
            lambda snapshot, table, limits: _plan(Table(2, {0: 1, 2: 1, 4: 1}, epoch=1), ONE_MOVE),
            "PolicyError: the plan's table",
        ),
        (
            lambda snapshot, table, limits: _plan(Table(2, {0: 1}, epoch=1), Moves.of([0], [0], [1], [1e9])),
            "PolicyError: the plan moves 1000000000 bytes",
        ),
    ],
)
def test_a_policy_that_misbehaves_keeps_the_old_table_and_is_logged_once(
    policy: Callable[..., Plan], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(Pace(patience=1, swap_bytes=1e6), policy=policy, limits=Limits(max_entries=2))
    before = stream.controller.table
    with caplog.at_level(logging.WARNING):
        decisions = [stream.see(SKEWED) for _ in range(3)]
    assert {decision.action for decision in decisions} == {"stay"}
    assert stream.controller.table is before
    assert len(caplog.records) == 1
    [(error, times)] = stream.controller.status.errors.items()
    assert error.startswith(words)
    assert times == 3


def test_errors_that_never_come_twice_do_not_pile_up(caplog: pytest.LogCaptureFixture) -> None:
    def counting(snapshot: Snapshot, table: Table, limits: Limits) -> Plan:
        raise ValueError(f"batch {snapshot.batches}")

    stream = Stream(policy=counting)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            stream.see(SKEWED)
    errors = stream.controller.status.errors
    assert len(errors) == len(caplog.records) == KEPT_KINDS + 1
    assert sum(errors.values()) == 100


def test_a_key_that_no_move_can_level_stands_in_the_reason() -> None:
    stream = Stream()
    decision = stream.see({0: 90.0, 1: 10.0})
    assert decision.action == "stay"
    assert "only a split can level it" in decision.why


@pytest.mark.parametrize(
    ("table", "costs", "words"),
    [
        (Table(1), SKEWED, "level: imbalance 0.000"),
        (Table(2), {7: 5.0, 8: 5.0}, "level: imbalance 0.000"),
        (
            Table(2),
            {7: 5.0},
            "nothing better was found; split: key hash 7 carries 2.00 times the mean; only a split can level "
            "it",
        ),
        (Table(2), dict.fromkeys(range(20), 5.0), "level: imbalance 0.000"),
        (Table(2), {0: 0.0, 2: 0.0}, "idle"),
        (Table(2), {}, "idle"),
    ],
)
def test_input_that_leaves_nothing_to_do_is_left_alone_and_the_reason_told(
    table: Table, costs: dict[int, float], words: str
) -> None:
    stream = Stream(table=table)
    for _ in range(5):
        stream.clock.now += 100
        decision = stream.see(costs)
        assert decision.action == "stay"
        assert decision.why.startswith(words)
    assert not stream.controller.status.errors


def test_equal_keys_on_one_partition_are_dealt_out_once() -> None:
    stream = Stream()
    equal = dict.fromkeys(range(0, 40, 2), 5.0)
    assert len(stream.swap(equal).moves) == 10
    stream.clock.now += 100
    assert stream.see(equal).why.startswith("level: imbalance 0.000")


def test_load_that_no_tracked_key_explains_is_named() -> None:
    stream = Stream()
    snapshot = Snapshot.of(Table(2), [1], [1.0], remainder_costs=[50.0, 0.0], batches=(1,))
    assert "fixed: partition 0 holds 1.96 times the mean in keys that cannot move; track more keys" in (
        stream.controller.observe(snapshot).why
    )


def test_a_drifting_stream_stays_level_with_few_swaps() -> None:
    """Forty batches; the hot keys change every ten, and are level again two batches later, with about a swap
    a change."""
    rng = np.random.default_rng(8)
    stream = Stream(Pace(patience=1, cooldown_seconds=0), table=Table(8), limits=Limits(0.1, 200))
    hashes = rng.choice(1 << 20, 2000, replace=False)
    plain, realised = [], []
    for batch in range(40):
        if batch % 10 == 0:
            costs = rng.permutation(100 * np.arange(1, 2001) ** -0.95)
        noisy = dict(zip(hashes.tolist(), (costs * rng.uniform(0.9, 1.1, 2000)).tolist(), strict=True))
        plain.append(Snapshot.of(Table(8), hashes, list(noisy.values())).imbalance)
        snapshot = stream.snapshot(noisy)
        realised.append(snapshot.imbalance)
        if stream.controller.observe(snapshot).action == "swap":
            stream.controller.finished(stream.controller.table.epoch + 1, seconds=0.1)
    settled = [realised[batch] for batch in range(40) if batch % 10 > 1]
    assert np.mean(plain) > 0.2
    assert max(settled) < 0.1
    assert 4 <= stream.controller.status.swaps <= 6


@pytest.mark.parametrize(
    "bad",
    [
        {"patience": 0},
        {"calm": 0},
        {"aim": -1},
        {"aim": 1.5},
        {"cooldown_seconds": float("nan")},
        {"hour_bytes": -1},
        {"patience": "3"},
        {"aim": None},
        {"calm": True},
    ],
)
def test_a_pace_out_of_its_range_is_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(bad))):
        Pace(**bad)


def test_the_controller_needs_no_spark() -> None:
    code = (
        "import sys, skewless.control.controller; "
        "sys.exit(any(name.split('.')[0] in ('pyspark', 'py4j') for name in sys.modules))"
    )
    path = ":".join(entry for entry in sys.path if entry)
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=False).returncode == 0
