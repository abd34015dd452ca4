"""Partials on their way through a stream's state, as bytes: a key and its partial in one Arrow message. Rows
that no first level has reduced travel alike, as packets of rows.

As bytes because `applyInPandasWithState` turns columns into pandas ones, in which a long beside a null
becomes a float and a null beside a float becomes NaN. Only bytes come through that unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skewless.operators.aggregates.levels import SLOT, Level, with_key
from skewless.operators.aggregates.merger import Merger

if TYPE_CHECKING:
    import pandas as pd

PACKET = "__skewless_packet"
ROWS = b"r"
"""What a packet of rows begins with; one with a partial begins as Arrow streams do."""

MOST_ROWS = 10_000
"""So many rows of packets go to `partial` in one call."""

_PLACE = "__skewless_place"


def packing_level(merger: Merger, keys: pa.Schema) -> Level:
    """The first level of a stream: a group is (key, slot) or key, and its partial comes out as one packet."""

    def packing(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partial = merger.partial_of(
            batch.drop_columns([SLOT]) if SLOT in batch.schema.names else batch for batch in batches
        )
        own = key[: len(keys)]
        if partial.num_rows:
            packet = _packed(pa.Table.from_batches(list(with_key(partial, own, keys))))
            yield from with_key(pa.table({PACKET: pa.array([packet], pa.binary())}), own, keys)

    return packing


def passing(
    merger: Merger, keys: pa.Schema, rows: pa.Schema, hot_share: float | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The step before the shuffle of a stream that has no first level: of each Arrow batch, the rows of each
    key as one packet, or their partial if they are at least `hot_share` of the batch."""

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            batch = given.cast(rows)
            hot = None if hot_share is None else hot_share * batch.num_rows
            packets: list[tuple[pa.RecordBatch, bytes]] = []
            for part in _by_key(batch, keys.names):
                of_key = part.slice(0, 1)
                if hot is None or part.num_rows < hot:
                    packets.append((of_key, ROWS + part.serialize().to_pybytes()))
                    continue
                partial = merger.partial_of([part])
                if partial.num_rows:
                    own = [of_key.column(name)[0] for name in keys.names]
                    packets.append(
                        (of_key, _packed(pa.Table.from_batches(list(with_key(partial, own, keys)))))
                    )
            if packets:
                yield _beside(packets, keys)

    return passed


def _by_key(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of each key. Keys that Spark takes for equal may come apart, which the second level mends."""
    places = pa.table({name: batch.column(name) for name in keys} | {_PLACE: pa.array(range(batch.num_rows))})
    try:
        grouped = places.group_by(list(keys), use_threads=False).aggregate([(_PLACE, "list")])
        lists = grouped[f"{_PLACE}_list"].combine_chunks()
        ordered, sizes = batch.take(lists.flatten()), lists.value_lengths().to_pylist()
    except pa.ArrowNotImplementedError:  # Arrow hashes no structs: each row for itself
        ordered, sizes = batch, [1] * batch.num_rows
    start = 0
    for size in sizes:
        yield ordered.slice(start, size)
        start += size


def _beside(packets: list[tuple[pa.RecordBatch, bytes]], keys: pa.Schema) -> pa.RecordBatch:
    own = (
        pa.Table.from_batches([of_key.select(keys.names) for of_key, _ in packets])
        .cast(keys)
        .combine_chunks()
    )
    columns = [column.combine_chunks() for column in own.columns]
    made = pa.array([packet for _, packet in packets], pa.binary())
    return pa.RecordBatch.from_arrays([*columns, made], names=[*keys.names, PACKET])


def keeping_level(
    merger: Merger, keys: pa.Schema, at_once: bool, timeout_ms: int | None, rows: pa.Schema | None = None
) -> Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """The second level: one packet per key as its state. It comes out with each batch that has rows of the
    key if `at_once`, else when the key times out. `rows` are the types of packets of rows."""

    def keeping(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        if state.hasTimedOut:
            if not at_once:
                yield pd.DataFrame({PACKET: [state.get[0]]})
            state.remove()
            return
        before = [state.get[0]] if state.exists else []
        came = (packet for frame in frames for packet in frame[PACKET])
        own: list[pa.Scalar] = []

        def partials() -> Iterator[pa.Table]:
            for of, partial in _partials(
                (packet for some in (before, came) for packet in some), merger, keys, rows
            ):
                own[:] = own or of
                yield partial

        kept = merger.merged(partials())
        if not kept.num_rows:
            state.remove()
            return
        packet = _packed(pa.Table.from_batches(list(with_key(kept, own, keys))))
        state.update((packet,))
        if timeout_ms is not None:
            state.setTimeoutDuration(timeout_ms)
        if at_once:
            yield pd.DataFrame({PACKET: [packet]})

    return keeping


def _partials(
    packets: Iterable[bytes], merger: Merger, keys: pa.Schema, rows: pa.Schema | None
) -> Iterator[tuple[list[pa.Scalar], pa.Table]]:
    """The key and the partial of each packet; rows are put together before `partial` is called."""
    held: list[pa.RecordBatch] = []

    def reduced() -> Iterator[tuple[list[pa.Scalar], pa.Table]]:
        if held:
            chunks = pa.Table.from_batches(held).combine_chunks().to_batches()  # more than one above 2 GB
            held.clear()
            for chunk in chunks:
                own = [chunk.column(field.name).slice(0, 1).cast(field.type)[0] for field in keys]
                yield own, merger.partial_of([chunk])

    room = MOST_ROWS
    for packet in packets:
        if packet[:1] != ROWS:
            yield _unpacked(packet, merger, keys)
            continue
        held.append(pa.ipc.read_record_batch(pa.py_buffer(packet[1:]), rows))
        room -= held[-1].num_rows
        if room <= 0:
            yield from reduced()
            room = MOST_ROWS
    yield from reduced()


def opening(merger: Merger, keys: pa.Schema) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The last step: the results of the packets that came out."""

    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packet in batch.column(PACKET).to_pylist():
                own, partial = _unpacked(packet, merger, keys)
                yield from with_key(merger.result_of(partial), own, keys)

    return opened


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(packet: bytes, merger: Merger, keys: pa.Schema) -> tuple[list[pa.Scalar], pa.Table]:
    """The key and the partial; columns by position, since a partial may have a column of a key's name."""
    table = pa.ipc.open_stream(packet).read_all()
    own = [column[0] for column in table.columns[: len(keys)]]
    schema = merger.partial_schema
    return own, pa.Table.from_arrays(table.columns[len(keys) :], names=schema.names).cast(schema)
