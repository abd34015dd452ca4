from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skewless.control.memory import batch_record
from skewless.control.observed import ObservedBatch
from skewless.report.records import KEPT_KEYS, BatchRecord, QueryRecord, SwapRecord, usual_ms


def batch(
    number: int,
    batch_ms: int = 100,
    epoch: int = 0,
    rows: int = 10,
    imbalance: float = 0.0,
    predicted: float | None = None,
    saved: float | None = None,
) -> BatchRecord:
    loads = np.array([1.0, 1.0])
    return BatchRecord(number, epoch, batch_ms, rows, loads, 0, (), imbalance, predicted, saved)


SWAP = SwapRecord(5, 1, (3,), 1, "gain", batch_ms=400, expected_ms=300.0)


def record(*batches: BatchRecord) -> QueryRecord:
    return QueryRecord("q", "", True, 1, 0, "", batches, (SWAP,))


def test_a_batch_keeps_its_loads_and_its_hottest_keys() -> None:
    hashes = np.arange(100, dtype=np.int32)
    observed = ObservedBatch(
        3, 1, 70, [300, 100], [1, 1], [900, 300], hashes, hashes.astype(np.int64), max_error=4
    )  # type: ignore[arg-type]
    kept = batch_record(observed, entries=7)
    assert (kept.batch, kept.epoch, kept.rows, kept.entries) == (3, 1, 400, 7)
    assert kept.loads.tolist() == pytest.approx([0.9, 0.3])
    assert kept.imbalance == pytest.approx(0.5)
    assert [key.key_hash for key in kept.hot_keys] == list(range(99, 99 - KEPT_KEYS, -1))
    assert kept.hot_keys[0].share == 99 / 400
    assert kept.hot_keys[0].error == 0.01


def test_a_batch_without_rows_has_no_hot_keys() -> None:
    kept = batch_record(ObservedBatch(3, 1, 70, [0], [0], [5], [1], [0]), entries=0)  # type: ignore[arg-type]
    assert kept.hot_keys == ()
    assert kept.imbalance == 0


def test_a_usual_batch_is_the_median_of_the_last_twenty_with_rows() -> None:
    batches = (
        [batch(i, 10_000) for i in range(30)]
        + [batch(i, 100) for i in range(30, 50)]
        + [batch(50, 1, rows=0)]
    )
    assert usual_ms(batches) == 100
    assert usual_ms([batch(0, rows=0)]) is None


def test_gain_and_realised_balance_are_of_the_batches_under_the_swaps_own_table() -> None:
    own = batch(5, 400, epoch=1, imbalance=0.8, saved=999)
    after = [
        batch(6, 0, epoch=1, rows=0),
        batch(7, 100, epoch=1, imbalance=0.5, saved=50),
        batch(8, 200, epoch=1, saved=200),
        batch(9, 200, epoch=1, saved=300),
    ]
    found = record(batch(4, 300), own, *after, batch(10, 9000, epoch=2, saved=1))
    assert found.realised(SWAP) == 0.5
    assert found.gain(SWAP) == 2.0
    assert record(own).gain(SWAP) is None
    assert record(own).realised(SWAP) is None


def test_the_clocks_error_is_the_median_over_batches_that_were_no_swaps_own() -> None:
    swapped = batch(5, 100, epoch=1, predicted=900)
    batches = [batch(4, 100, predicted=110), swapped, batch(6, 100, predicted=70)]
    assert record(*batches, batch(7, 100)).model_error == pytest.approx(0.2)
    assert record(swapped).model_error is None


def test_the_last_batch_is_the_last_with_rows() -> None:
    found = record(batch(4), batch(5, rows=0))
    assert found.last_batch is not None
    assert found.last_batch.batch == 4


def test_a_swap_names_the_keys_whose_values_are_known() -> None:
    named = replace(SWAP, key_hashes=(3, -9), key_values=("alice", None), moved=2)
    assert str(named).startswith('batch 5 went to epoch 1: 2 keys moved ("alice" (hash 3), hash -9), batch')
    many = replace(named, key_hashes=tuple(range(20)), key_values=("k",) * 20, moved=20)
    assert '"k" (hash 4) ...)' in str(many)


def test_the_line_of_a_swap_ends_with_what_it_gained_by_the_clock() -> None:
    own, swap = batch(5, 400, epoch=1), replace(SWAP, before=0.9, predicted=0.1)
    after = batch(6, 100, epoch=1, imbalance=0.5, saved=100, predicted=110)
    assert (
        record(own, after)
        .sentence(swap)
        .endswith(
            "; imbalance 0.900 before, 0.100 predicted, 0.500 realised; batches take 0.50 of what they would "
            "under the table before; the clock is 10% off"
        )
    )
    assert record(own).sentence(swap).endswith("; imbalance 0.900 before, 0.100 predicted; no batch since")
    assert record(own).sentence(SWAP).endswith("(100 ms longer); no batch since")


def test_a_gain_within_the_clocks_error_is_not_measurable() -> None:
    own, small = batch(5, 400, epoch=1), batch(6, 100, epoch=1, saved=9, predicted=110)
    words = record(own, small).gain_words(SWAP)
    assert words.startswith("gain not measurable: by the clock batches take 0.92")
    assert record(own, batch(6, 100, epoch=1)).gain_words(SWAP) == "gain not known yet"


def test_a_swap_is_told_in_a_line_that_leaves_out_what_is_not_known() -> None:
    assert str(SWAP) == "batch 5 went to epoch 1: 1 key moved (hashes 3), batch 400 ms (100 ms longer)"
    assert str(SwapRecord(5, 1, (), 0, "", 400)) == "batch 5 went to epoch 1: no key moved, batch 400 ms"
    many = SwapRecord(5, 1, tuple(range(20)), 900, "", 400, 500.0)
    assert (
        str(many)
        == "batch 5 went to epoch 1: 900 keys moved (hashes 0 1 2 3 4 ...), batch 400 ms (0 ms longer)"
    )
