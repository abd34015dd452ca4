"""What a swap changed, against rows that are routed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_gateway import FakeQuery
from skewless.control.costs import snapshot_of
from skewless.control.observed import ObservedBatch
from skewless.control.table_change import TableChange
from skewless.model.split import Split
from skewless.model.table import Table

N = 6
ENTRIES = st.one_of(
    st.integers(0, N - 1),
    st.permutations(range(N)).flatmap(
        lambda targets: st.sampled_from(
            [Split(tuple(targets[:3])), Split(tuple(targets[:2]), 1), Split(tuple(targets[:6]), 2)]
        )
    ),
)
TABLES = st.dictionaries(st.integers(0, 7), ENTRIES, max_size=5).map(lambda found: Table(N, found, epoch=1))
ROWS = st.dictionaries(st.integers(0, 7), st.integers(0, 4).map(lambda n: 12 * n), min_size=1, max_size=8)


def observed(table: Table, rows: dict[int, int], right: dict[int, int], number: int = 0) -> ObservedBatch:
    """A batch of a join whose rows the fake query spreads one by one."""
    query = FakeQuery(partitions=N, sides="either", right_rows=right)
    query.pins.append((0, table))
    query._run(number, rows)
    return query.committed[0]


@given(TABLES, TABLES, ROWS, st.integers(0, 2))
@settings(deadline=None)
def test_rows_before_are_those_that_the_table_before_would_have_given(
    before: Table, after: Table, rows: dict[int, int], rights: int
) -> None:
    """Twelve divides by every width here, so that the choices come out even."""
    right = {key: 12 * rights for key, count in rows.items() if count >= 12 * rights}
    change = TableChange(1, before, after)
    found = change.rows_before(observed(after, rows, right))
    assert found.tolist() == observed(before, rows, right).rows.tolist()
    assert set(change.moved).isdisjoint({split.key_hash for split in change.splits})


@given(TABLES, ROWS, st.integers(0, 2))
@settings(deadline=None)
def test_a_snapshot_of_a_join_has_the_loads_that_were_seen_and_each_row_once_in_its_keys(
    table: Table, rows: dict[int, int], rights: int
) -> None:
    right = {key: 12 * rights for key, count in rows.items() if count >= 12 * rights}
    batch = observed(table, rows, right)
    snapshot = snapshot_of([batch], table, cost=lambda hashes, counts: counts)
    assert snapshot.sides == "either"
    assert snapshot.loads == pytest.approx(batch.rows.astype(float))
    hashes = np.array(sorted(rows), dtype=np.int32)
    left, other = snapshot.costs_of(hashes)
    assert (left + other) == pytest.approx([rows[key] for key in hashes.tolist()])
    assert other == pytest.approx([right.get(key, 0) for key in hashes.tolist()])


def test_a_key_that_was_whole_in_earlier_batches_weighs_as_it_is_split_now() -> None:
    whole, split = Table(N), Table(N, {0: Split.left(0, 1, 2)}, epoch=1)
    batches = [
        observed(whole, {0: 60, 3: 12}, {0: 12}, 0),
        observed(split, {0: 60, 3: 12}, {0: 12}, 0),
    ]
    snapshot = snapshot_of(batches, split, cost=lambda hashes, counts: counts, earlier={0: whole})
    assert snapshot.loads == pytest.approx([56, 56, 56, 24, 0, 0])
    assert snapshot.loads_under(split, Table(N, epoch=2)) == pytest.approx([120, 0, 0, 24, 0, 0])


def test_measured_state_of_a_split_key_is_counted_once() -> None:
    table = Table(N, {0: Split.left(0, 1, 2)}, epoch=1)
    batch = observed(table, {0: 60}, {0: 12})
    sized = ObservedBatch(
        0, 1, 9, batch.rows, batch.bytes, batch.run_ms, [0], [60], sides="left", right_rows=[12],
        state_hashes=[0], state_bytes=[840], partition_state_bytes=[300, 280, 280, 5, 0, 0],
    )  # type: ignore[arg-type]  # fmt: skip
    snapshot = snapshot_of([sized], table)
    assert snapshot.split_bytes == pytest.approx([600]), "840 = 480 + 3 x 120, a fifth of it on the right"
    assert snapshot.remainder_bytes == pytest.approx([300, 280, 280, 5, 0, 0])
