"""Partials on their way through a stream's state, as bytes: a key and its partial in one Arrow message.

As bytes because `applyInPandasWithState` turns columns into pandas ones, in which a long beside a null
becomes a float and a null beside a float becomes NaN. Only bytes come through that unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skewless.operators.aggregates.levels import SLOT, Level, with_key
from skewless.operators.aggregates.merger import Merger

if TYPE_CHECKING:
    import pandas as pd

PACKET = "__skewless_packet"


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


def keeping_level(
    merger: Merger, keys: pa.Schema, at_once: bool, timeout_ms: int | None
) -> Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """The second level: one packet per key as its state. It comes out with each batch that has rows of the
    key if `at_once`, else when the key times out."""

    def keeping(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd

        if state.hasTimedOut:
            if not at_once:
                yield pd.DataFrame({PACKET: [state.get[0]]})
            state.remove()
            return
        packets = [state.get[0]] if state.exists else []
        packets += [packet for frame in frames for packet in frame[PACKET]]
        own: list[pa.Scalar] = []

        def partials() -> Iterator[pa.Table]:
            for packet in packets:
                of, partial = _unpacked(packet, merger, keys)
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
