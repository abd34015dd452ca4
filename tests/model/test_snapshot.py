from __future__ import annotations

import numpy as np
import pytest

from skewless.errors import SettingError
from skewless.model.snapshot import Snapshot, imbalance_of
from skewless.model.table import Table


def test_loads_add_up_tracked_keys_and_remainders() -> None:
    snapshot = Snapshot.of(Table(3, {5: 0}), [3, 4, 5], [1.0, 2.0, 4.0], remainder_costs=[0.5, 0.0, 1.0])
    assert snapshot.loads.tolist() == [5.5, 2.0, 1.0]
    assert snapshot.imbalance == pytest.approx(5.5 / (8.5 / 3) - 1)


def test_sources_are_what_the_table_routes() -> None:
    rng = np.random.default_rng(7)
    hashes = rng.integers(-(1 << 31), 1 << 31, 500)
    table = Table.of_moves(7, np.unique(hashes[:40]), rng.integers(0, 7, len(np.unique(hashes[:40]))))
    snapshot = Snapshot.of(table, hashes, np.ones(500))
    assert snapshot.sources.tolist() == table.route(snapshot.key_hashes).tolist()


def test_keys_are_sorted_and_equal_hashes_added_up() -> None:
    snapshot = Snapshot.of(Table(2), [9, -4, 9], [1.0, 2.0, 3.0], [10, 20, 30])
    assert snapshot.key_hashes.tolist() == [-4, 9]
    assert snapshot.costs.tolist() == [2.0, 4.0]
    assert snapshot.state_bytes.tolist() == [20.0, 40.0]


def test_not_even_the_rounding_of_a_sum_depends_on_the_order_of_the_keys() -> None:
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    assert Snapshot.of(Table(2), [4, 4, 4], [0.1, 0.2, 0.3]) == Snapshot.of(
        Table(2), [4, 4, 4], [0.3, 0.2, 0.1]
    )


def test_a_split_key_weighs_equally_on_its_targets_and_cannot_move() -> None:
    snapshot = Snapshot.of(Table(3, {6: (0, 2)}), [6, 7], [8.0, 1.0], [80, 10])
    assert snapshot.key_hashes.tolist() == [7]
    assert snapshot.loads.tolist() == [4.0, 1.0, 4.0]
    assert snapshot.remainder_bytes.tolist() == [40.0, 0.0, 40.0]


def test_imbalance_is_zero_without_load_and_one_sided_with_it() -> None:
    assert imbalance_of(np.zeros(3)) == 0
    assert imbalance_of(np.array([1.0, 1.0, 0.0])) == pytest.approx(0.5)


def test_the_epoch_and_the_batches_are_kept() -> None:
    snapshot = Snapshot.of(Table(2, epoch=4), [1], [1.0], batches=(8, 9))
    assert (snapshot.epoch, snapshot.batches) == (4, (8, 9))


def test_a_snapshot_does_not_change_when_the_callers_arrays_do() -> None:
    costs = np.array([1.0, 2.0])
    snapshot = Snapshot.of(Table(2), np.array([1, 2], dtype=np.int32), costs)
    costs[0] = 99
    assert snapshot.costs.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        snapshot.costs[0] = 5


def test_equal_snapshots_compare_equal() -> None:
    first, second = (Snapshot.of(Table(2), [1, 2], [1.0, 2.0]) for _ in range(2))
    assert first == second
    assert first != Snapshot.of(Table(2), [1, 2], [1.0, 2.5])


@pytest.mark.parametrize("bad", [float("nan"), -1.0, float("inf")])
@pytest.mark.parametrize("name", ["costs", "state_bytes", "remainder_costs", "remainder_bytes"])
def test_amounts_that_are_no_amounts_are_refused_by_name(name: str, bad: float) -> None:
    amounts = {
        "costs": [1.0, 1.0],
        "state_bytes": [1.0, 1.0],
        "remainder_costs": [1.0, 1.0],
        "remainder_bytes": [1.0, 1.0],
    }
    amounts[name] = [1.0, bad]
    with pytest.raises(SettingError, match=name):
        Snapshot.of(Table(2), [1, 2], **amounts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"key_hashes": [1, 2], "costs": [1.0]}, "costs have shape"),
        ({"key_hashes": [1], "costs": [1.0], "remainder_costs": [1.0]}, "remainder_costs have shape"),
        ({"key_hashes": [[1]], "costs": [1.0]}, "dimensions"),
        ({"key_hashes": [1.5], "costs": [1.0]}, "type float64"),
        ({"key_hashes": [1 << 31], "costs": [1.0]}, "32 bits"),
        ({"key_hashes": [1], "costs": ["dear"]}, "not numbers"),
        ({"key_hashes": [1, 2], "costs": [1e308, 1e308]}, "a sum beyond"),
    ],
)
def test_arguments_of_the_wrong_shape_or_type_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Snapshot.of(Table(2), **arguments)  # type: ignore[arg-type]


def test_the_plain_constructor_refuses_unsorted_hashes_and_foreign_partitions() -> None:
    def build(hashes: list[int], sources: list[int], partitions: int = 2) -> Snapshot:
        keys, zeros = np.array(hashes, dtype=np.int32), np.zeros(len(hashes))
        return Snapshot(
            partitions, keys, zeros, zeros, np.array(sources, dtype=np.int32), np.zeros(2), np.zeros(2)
        )

    with pytest.raises(SettingError, match="sorted"):
        build([2, 1], [0, 1])
    with pytest.raises(SettingError, match="not one of the 2"):
        build([1, 2], [0, 2])
    with pytest.raises(SettingError, match="at least 1"):
        build([1], [0], partitions=0)
    with pytest.raises(SettingError, match="sources have shape"):
        build([1, 2], [0])
