"""What tasks do with Arrow, without Spark: both levels in a row give what one fold gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import StructType

from skewless.operators.aggregates.aggregate import Aggregate
from skewless.operators.aggregates.levels import PARTIAL, RESULT, SLOT, first_level, second_level
from skewless.operators.aggregates.merger import MOST_HELD, Merger
from skewless.operators.aggregates.packets import (
    MOST_ROWS,
    PACKET,
    ROWS,
    keeping_level,
    opening,
    packing_level,
    passing,
)
from skewless.operators.aggregates.pandas_frames import _by_pandas

TYPES = pa.schema([("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
KEYS = pa.schema([("k", pa.int64())])
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


def largest_two(table: pa.Table) -> pa.Table:
    return table.select(["v", "at"]).take(pc.sort_indices(table, [("v", "descending")])[:2])


def merger(**changed: Any) -> Merger:
    return Merger(Aggregate(largest_two, largest_two, StructType(), **changed), TYPES, TYPES)


def rows(key: int | None, values: list[int], slot: int | None = None) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "k": pa.array([key] * count, pa.int64()),
        "v": pa.array(values),
        "at": pa.array([NOON] * count, pa.timestamp("us", "Asia/Kathmandu")),
    }
    return pa.RecordBatch.from_pydict(columns if slot is None else columns | {SLOT: [slot] * count})


def key_of(*values: int | None) -> tuple[pa.Scalar, ...]:
    return tuple(pa.scalar(value, pa.int64()) for value in values)


def test_a_whole_key_is_done_in_the_first_level_and_a_part_of_a_hot_one_is_sent_on_in_one_row() -> None:
    first = first_level(merger(), KEYS)
    (done,) = first(key_of(7, 0), iter([rows(7, [1, 5, 3], 0), rows(7, [4], 0)]))
    assert done.column(PARTIAL).null_count == 2
    assert [row["v"] for row in done.column(RESULT).to_pylist()] == [5, 4]
    (sent,) = first(key_of(7, 3), iter([rows(7, [1, 5, 3], 3)]))
    assert sent.num_rows == 1
    assert sent.column(RESULT).null_count == 1
    assert [row["v"] for row in sent.column(PARTIAL)[0].as_py()] == [5, 3]


def test_the_second_level_merges_a_hot_key_and_passes_buckets_of_others() -> None:
    first, second = first_level(merger(), KEYS), second_level(merger(), KEYS)
    parts = [
        next(first(key_of(None, slot), iter([rows(None, [slot, 10 * slot], slot)]))) for slot in (1, 2, 3)
    ]
    (hot,) = second(key_of(None, -1), iter(parts))
    assert hot.to_pydict() == {"k": [None, None], "v": [30, 20], "at": [NOON, NOON]}
    done = [next(first(key_of(key, 0), iter([rows(key, [key], 0)]))) for key in (4, 5)]
    passed = list(second(key_of(None, 6), iter(done)))
    assert [batch.to_pydict()["v"] for batch in passed] == [[4], [5]]


def test_no_more_than_a_few_partials_are_held_and_one_alone_is_not_merged() -> None:
    seen: list[int] = []

    def merge(table: pa.Table) -> pa.Table:
        seen.append(table.num_rows)
        return largest_two(table)

    counted = Merger(Aggregate(largest_two, merge, StructType()), TYPES, TYPES)
    whole = counted.partial_of(rows(1, [n, n + 1]) for n in range(100))
    assert whole["v"].to_pylist() == [100, 99]
    assert max(seen) == 2 * MOST_HELD
    seen.clear()
    assert counted.partial_of([rows(1, [3])])["v"].to_pylist() == [3]
    assert seen == []


def test_a_key_without_a_partial_gives_nothing() -> None:
    def none(table: pa.Table) -> pa.Table:
        return table.select(["v", "at"]).slice(0, 0)

    empty = Merger(Aggregate(none, none, StructType(), result=largest_two), TYPES, TYPES)
    for slot in (0, 2):
        assert list(first_level(empty, KEYS)(key_of(7, slot), iter([rows(7, [1], slot)]))) == []
    assert list(packing_level(empty, KEYS)(key_of(7), iter([rows(7, [1])]))) == []


class State:
    """What `applyInPandasWithState` gives a function, as far as the second level asks."""

    hasTimedOut = False  # noqa: N815

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.timeout: int | None = None

    @property
    def exists(self) -> bool:
        return bool(self.held)

    @property
    def get(self) -> Any:
        return self.held[0]

    def update(self, value: Any) -> None:
        self.held = [value]

    def remove(self) -> None:
        self.held = []

    def setTimeoutDuration(self, milliseconds: int) -> None:  # noqa: N802
        self.timeout = milliseconds


@pytest.mark.parametrize("key", [2**53 + 1, None])
def test_a_stream_keeps_one_packet_per_key_exactly(key: int | None) -> None:
    made, state = merger(), State()
    pack, keep = packing_level(made, KEYS), keeping_level(made, KEYS, True, 9)
    values = [2**53 + 1, 7, -(2**62)]
    out: list[pd.DataFrame] = []
    for batch in ([rows(key, values[:1], 1)], [rows(key, values[1:2], 2), rows(key, values[2:], 2)]):
        (packet,) = pack(key_of(key, 1), iter(batch))
        assert packet.column("k").to_pylist() == [key]
        frame = pd.DataFrame({PACKET: packet.column(PACKET).to_pylist()})
        out += keep(None, iter([frame]), state)
    assert state.timeout == 9
    opened = list(opening(made, KEYS)(iter([pa.RecordBatch.from_pandas(frame) for frame in out[1:]])))
    assert opened[0].to_pydict() == {"k": [key, key], "v": [2**53 + 1, 7], "at": [NOON, NOON]}


def mixed(keys: list[int | None], values: list[int]) -> pa.RecordBatch:
    columns = {"k": pa.array(keys, pa.int64()), "v": pa.array(values), "at": pa.array([NOON] * len(keys))}
    return pa.RecordBatch.from_pydict({name: columns[name] for name in ROW.names}, schema=ROW)


ROW = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us", "Asia/Kathmandu"))])


@pytest.mark.parametrize("hot_share", [None, 0.4, 0.0])
def test_without_a_first_level_the_rows_of_each_key_of_a_batch_travel_as_one_packet(
    hot_share: float | None,
) -> None:
    made, big = merger(), 2**53 + 1
    batches = [mixed([1, None, 1, big, None], [4, 5, 6, big, -1]), mixed([1, 1], [9, 2])]
    sent = list(passing(made, KEYS, ROW, hot_share)(iter(batches)))
    by_key: dict[int | None, list[bytes]] = {}
    for batch in sent:
        for key, packet in zip(*batch.to_pydict().values(), strict=True):
            by_key.setdefault(key, []).append(packet)
    assert {key: len(packets) for key, packets in by_key.items()} == {1: 2, None: 1, big: 1}
    reduced = sum(packet[:1] != ROWS for packets in by_key.values() for packet in packets)
    assert reduced == {None: 0, 0.4: 3, 0.0: 4}[hot_share]
    largest = {1: [9, 6], None: [5, -1], big: [big]}
    for key, packets in by_key.items():
        state = State()
        keep = keeping_level(made, KEYS, True, None, ROW)
        (out,) = keep(None, iter([pd.DataFrame({PACKET: packets})]), state)
        (opened,) = opening(made, KEYS)(iter([pa.RecordBatch.from_pandas(out)]))
        assert opened.to_pydict()["v"] == largest[key]
        assert opened.to_pydict()["k"] == [key] * len(largest[key])


def test_packets_of_rows_are_put_together_up_to_a_bound_before_partial_is_called() -> None:
    calls: list[int] = []

    def counted(table: pa.Table) -> pa.Table:
        calls.append(table.num_rows)
        return largest_two(table)

    made = Merger(Aggregate(counted, largest_two, StructType()), TYPES, TYPES)
    batches = [mixed([1] * 1000, list(range(1000))) for _ in range(25)]
    packets = [batch.to_pydict()[PACKET][0] for batch in passing(made, KEYS, ROW, None)(iter(batches))]
    keep = keeping_level(made, KEYS, True, None, ROW)
    assert len(list(keep(None, iter([pd.DataFrame({PACKET: packets})]), State()))) == 1
    assert calls == [MOST_ROWS, MOST_ROWS, 5000]


def test_keys_that_arrow_cannot_hash_travel_row_by_row() -> None:
    keys = pa.schema([("k", pa.struct([("a", pa.int32())]))])
    row = pa.schema([*keys, ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    values: dict[str, list[Any]] = {"k": [{"a": 1}, {"a": 1}, None], "v": [1, 2, 3], "at": [NOON] * 3}
    (sent,) = passing(merger(), keys, row, None)(iter([pa.RecordBatch.from_pydict(values, schema=row)]))
    assert sent.column("k").to_pylist() == [{"a": 1}, {"a": 1}, None]


def test_a_key_that_times_out_comes_out_once_in_append_mode_and_is_forgotten() -> None:
    for at_once in (False, True):
        state, made = State(), merger()
        (packet,) = packing_level(made, KEYS)(key_of(1), iter([rows(1, [4])]))
        frames: Iterator[pd.DataFrame] = iter([pd.DataFrame({PACKET: packet.column(PACKET).to_pylist()})])
        keep = keeping_level(made, KEYS, at_once, 5)
        assert len(list(keep(None, frames, state))) == at_once
        state.hasTimedOut = True
        assert len(list(keep(None, iter([]), state))) == (not at_once)
        assert not state.exists


def test_timestamps_of_pandas_functions_are_in_the_sessions_zone_at_every_step() -> None:
    zone = "Asia/Kathmandu"
    spark = StructType().add("v", "long").add("at", "timestamp")
    hours: list[int] = []

    def same(frame: pd.DataFrame) -> pd.DataFrame:
        hours.extend(frame["at"].dt.hour)
        return frame[["v", "at"]]

    partial = _by_pandas(
        same,
        StructType().add("k", "long").add("v", "long").add("at", "timestamp"),
        spark,
        zone,
        "partial",
        local=True,
    )
    merge = _by_pandas(same, spark, spark, zone, "merge")
    made = Merger(Aggregate(partial, merge, spark), TYPES, TYPES)
    out = made.partial_of([rows(1, [1]), rows(1, [2])])
    assert out["at"].to_pylist() == [NOON, NOON]
    assert set(hours) == {17}
