"""The widths against the papers' formulas, written out once more; and FISH's inference against ours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless import policies
from skewless.control.costs import rates_of, snapshot_of
from skewless.control.observed import ObservedBatch
from skewless.model.snapshot import Snapshot
from skewless.model.split import Split
from skewless.model.table import Table
from skewless.policies import Limits, splits
from skewless.policies.splits.aj_stream import candidates, first_fit, splits_of
from skewless.policies.splits.fish import backlog_seconds, chk_width, workers_needed
from skewless.policies.splits.place import split_and_move
from skewless.policies.splits.planned import bytes_moved

SHARES = st.lists(st.floats(0.001, 1), min_size=1, max_size=12)


def seen_of(shares: list[float], partitions: int = 16, table: Table | None = None) -> splits.Seen:
    """Keys with these shares; what is left is in the remainders."""
    table = table or Table(partitions)
    rest = np.full(partitions, max(0.0, 1 - sum(shares)) / partitions)
    snapshot = Snapshot.of(table, range(len(shares)), shares, remainder_costs=rest, sides="left")
    return splits.Seen.of(snapshot, table)


def normal(weights: list[float]) -> list[float]:
    return [weight / (1.1 * sum(weights)) for weight in weights]


def widths(name: str, seen: splits.Seen) -> list[int]:
    return [int(width) for width in splits.get(name).widths(seen)]


@given(SHARES, st.integers(2, 40))
@settings(deadline=None)
def test_each_policy_gives_its_papers_widths(weights: list[float], n: int) -> None:
    shares = normal(weights)
    seen = seen_of(shares, n)
    assert widths("pkg", seen) == [2 if p > 1 / (5 * n) else 1 for p in seen.shares]
    assert widths("w_choices", seen) == [n if p > 1 / (5 * n) else 1 for p in seen.shares]
    assert widths("aj_stream", seen) == [min(n, max(1, math.floor(n * p + 1e-9))) for p in seen.shares]
    hot = [p for p in seen.shares if p > 1 / (4 * n)]
    least = min(n, max(2, math.ceil(n * sum(hot) / max(1, len(hot)))))
    chk = [max(n >> int(math.log2(max(hot) / p)), least) if p > 1 / (4 * n) else 1 for p in seen.shares]
    assert widths("fish", seen) == [min(n, width) for width in chk]


@given(SHARES, st.integers(2, 40))
@settings(deadline=None)
def test_d_choices_is_the_smallest_width_that_no_set_overloads(weights: list[float], n: int) -> None:
    head = sorted((p for p in normal(weights) if p > 1 / (5 * n)), reverse=True)
    if not head:
        return

    def fits(d: int) -> bool:
        for h in range(1, len(head) + 1):
            b = n - n * (1 - 1 / n) ** (h * d)
            rest = sum(head[h:]) * (b / n) ** d + (1 - sum(head)) * (b / n) ** 2
            if sum(head[:h]) + rest > b * (1 / n + 1e-4) + 1e-12:
                return False
        return True

    least = max(2, math.ceil(head[0] * n))
    expected = next((d for d in range(least, n) if fits(d)), n)
    assert max(widths("d_choices", seen_of(normal(weights), n))) == min(n, expected)


def test_fish_never_takes_workers_from_a_key_that_is_still_hot() -> None:
    shares = [0.4, 0.04]
    assert widths("fish", seen_of(shares)) == [16, 4]
    wider = Table(16, {1: tuple(range(9))})
    assert widths("fish", seen_of(shares, 16, wider)) == [16, 9]
    assert chk_width(0.04, 0.4, known=2, workers=16) == 2
    assert workers_needed(0.44, 2, 16) == 4


def test_aj_stream_names_the_largest_keys_until_the_table_is_full() -> None:
    shares, named = np.array([0.2, 0.1, 0.4, 0.3]), np.array([False, True, False, False])
    assert candidates(shares, named, 3).tolist() == [False, True, True, True]
    assert candidates(shares, named, 1).tolist() == named.tolist()
    assert candidates(shares, ~named, 2).tolist() == (~named).tolist(), "a table that is full stays as it is"
    assert splits_of(shares, 24).tolist() == [4, 2, 9, 7]
    assert first_fit(np.array([9.0, 1.0, 1.0, 1.0]), (1,), 2.0, 2) == (2, 3)
    assert first_fit(np.array([20.0, 1.0, 1.0, 1.0]), (1,), 2.0, 3) == (2, 3), (
        "fewer where no more are suitable"
    )


def test_aj_stream_changes_only_the_difference() -> None:
    table = Table(24, {0: (5, 9, 1)}, epoch=1)
    rest = np.full(24, 0.75 / 24)
    snapshot = Snapshot.of(table, [0], [0.25], [1.0], remainder_costs=rest, sides="left")
    plan = split_and_move(snapshot, table, Limits(0.0), splits.get("aj_stream"), policies.get("mixed"))
    [split] = plan.splits
    assert split.after.targets == (5, 9, 1, 0, 2, 3), "floor(24 x 0.25) = 6: three more, by first fit"


@pytest.mark.parametrize("name", splits.names())
def test_no_width_leaves_its_range(name: str) -> None:
    for shares in ([0.99], [0.5, 0.5], [0.0, 0.0], [1e-9] * 5, []):
        for n in (2, 3, 16):
            found = widths(name, seen_of(shares, n))
            assert all(1 <= width <= n for width in found)
            assert len(found) == len(shares)


def test_auto_does_not_widen_where_copies_cost_what_they_spare() -> None:
    table = Table(16)
    rest = np.full(16, 0.4 / 16)

    def width(right: float) -> int:
        snapshot = Snapshot.of(table, [0], [0.6], remainder_costs=rest, right_shares=[right], sides="left")
        return widths("auto", splits.Seen.of(snapshot, table))[0]

    found = [width(right) for right in (0.0, 0.05, 0.2, 0.5, 0.95)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 10
    assert found[-1] == 1


def test_auto_needs_no_split_where_a_task_less_is_what_the_slots_wait_for() -> None:
    """A key of one fair share of 16 partitions is no giant on 4 slots."""
    table = Table(16)
    snapshot = Snapshot.of(table, [0], [1.2 / 16], remainder_costs=np.full(16, 0.92 / 16), sides="left")
    assert widths("auto", splits.Seen.of(snapshot, table, slots=4)) == [1]
    assert widths("auto", splits.Seen.of(snapshot, table, slots=16))[0] > 1


def test_bytes_that_a_split_moves_are_copies_of_one_side_and_the_dealt_rows_of_what_is_dropped() -> None:
    left, right = 600.0, 10.0
    assert bytes_moved(Split.left(0, 1), Split.left(0, 1, 4, 5), left, right) == 2 * right
    assert bytes_moved(Split.left(0, 1, 4), Split.left(0, 1), left, right) == left / 3
    assert bytes_moved(Split.right(0, 1), Split.right(0, 1, 4), left, right) == left
    assert bytes_moved(Split.left(0, 1), Split.left(0, 1), left, right) == 0


# -- one slow executor ---------------------------------------------------------------------------------------


def one_slow_executor(number: int, slow: float = 3.0) -> ObservedBatch:
    """Eight partitions on four executors, two each; executor 3 takes three times as long for a row."""
    rng = np.random.default_rng(number)
    rows = 400 + rng.integers(-40, 41, 8)
    executors = np.arange(8) // 2
    run_ms = (2 * rows * np.where(executors == 3, slow, 1.0)).astype(np.int64)
    return ObservedBatch(
        number, 0, int(run_ms.max()), rows, rows * 10, run_ms, [0], [90],
        executors=executors, slots=[2, 2, 2, 2], sides="left", right_rows=[0],
    )  # type: ignore[arg-type]  # fmt: skip


def test_fishs_inference_and_our_seconds_per_row_agree_on_a_slow_executor() -> None:
    """FISH samples the time that a worker takes per tuple and infers from it how long the worker still has to
    work; our costs are rows times measured seconds per row. Both must name the same partitions, in the same
    order and by the same factor."""
    batches = [one_slow_executor(number) for number in range(4)]
    newest = batches[-1]
    *_, ours = rates_of(batches)
    per_tuple = newest.run_ms / 1000 / newest.rows
    fish = np.array(
        [backlog_seconds(0.0, rows * p, 0.0) for rows, p in zip(newest.rows, per_tuple, strict=True)]
    )
    assert set(np.argsort(fish)[-2:]) == set(np.argsort(newest.rows * ours)[-2:]) == {6, 7}
    assert (ours[6:].mean() / ours[:6].mean()) == pytest.approx(
        per_tuple[6:].mean() / per_tuple[:6].mean(), rel=0.35
    )
    elapsed = float(np.median(fish))
    waiting = [backlog_seconds(float(sent), 0.0, elapsed) for sent in fish]
    assert np.argmax(waiting) in (6, 7)
    assert max(waiting[:6]) < min(waiting[6:]) / 5, "the fast ones have caught up"


def test_new_slots_keep_clear_of_a_slow_executor() -> None:
    batches = [one_slow_executor(number) for number in range(4)]
    hot = [
        ObservedBatch(
            b.batch, 0, b.batch_ms, b.rows + np.where(np.arange(8) == 0, 900, 0), b.bytes,
            b.run_ms + np.where(np.arange(8) == 0, 1800, 0), [0], [1000],
            executors=b.executors, slots=b.slots, sides="left", right_rows=[10],
        )
        for b in batches
    ]  # type: ignore[arg-type]  # fmt: skip
    table = Table(8)
    snapshot = snapshot_of(hot, table)
    assert set(np.argsort(snapshot.loads)[-3:]) == {0, 6, 7}
    plan = split_and_move(snapshot, table, Limits(), splits.get("auto"), policies.get("mixed"))
    assert plan.splits[0].after.targets
    assert not {6, 7} & set(plan.splits[0].after.targets)
