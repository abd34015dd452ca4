"""What the tasks of the two levels do.

    first    a group is (key, slot). Slot 0 is a key that is not split: all its rows are here, and its result
             comes out. Another slot is a part of a hot key: its partial comes out
    second   a group is all partials of a hot key, and its result comes out; or a bucket of results of the
             first level, which pass as they are, many keys at a time

Separate from `skewless.aggregate` because this runs in Python workers and that on the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from skewless.operators.aggregates.merger import Merger

SLOT = "__skewless_slot"
PARTIAL = "__skewless_partial"
RESULT = "__skewless_result"
BUCKET = "__skewless_bucket"

Level = Callable[[tuple[Any, ...], Iterator[Any]], Iterator[Any]]


def only_level(merger: Merger, keys: pa.Schema) -> Level:
    """The level where nothing is hot: plain grouping."""

    def only(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return with_key(merger.result_of(merger.partial_of(batches)), key, keys)

    return only


def first_level(merger: Merger, keys: pa.Schema) -> Level:
    def first(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partial = merger.partial_of(batch.drop_columns([SLOT]) for batch in batches)
        *own, slot = key
        if slot.as_py() != 0:
            return with_key(_sent_on(partial, merger), own, keys)
        return with_key(_done(merger.result_of(partial), merger), own, keys)

    return first


def second_level(merger: Merger, keys: pa.Schema) -> Level:
    def second(key: tuple[pa.Scalar, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if key[-1].as_py() >= 0:
            for batch in batches:
                yield _unpacked(batch, RESULT, keys, merger.result_schema)
            return
        own: list[pa.Scalar] = []

        def partials() -> Iterator[pa.Table]:
            for batch in batches:
                own[:] = own or [batch.column(name)[0] for name in keys.names]
                for partial in batch.column(PARTIAL):
                    yield _table(partial.values, merger.partial_schema)

        result = merger.result_of(merger.merged(partials()))
        yield from with_key(result, own, keys)

    return second


def with_key(frame: pa.Table, key: Iterable[pa.Scalar], keys: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a key, with the key in front."""
    for batch in frame.combine_chunks().to_batches():
        columns = [
            pa.repeat(value, batch.num_rows).cast(field.type) for value, field in zip(key, keys, strict=True)
        ]
        yield pa.RecordBatch.from_arrays([*columns, *batch.columns], names=[*keys.names, *batch.schema.names])


def _sent_on(partial: pa.Table, merger: Merger) -> pa.Table:
    """A partial in one row, so that it is never cut; no row if it is empty."""
    rows = partial.combine_chunks().to_struct_array().combine_chunks()
    lists = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
    nothing = pa.nulls(1, pa.struct(merger.result_schema))
    return pa.table({PARTIAL: lists, RESULT: nothing}).slice(0, min(1, len(rows)))


def _done(result: pa.Table, merger: Merger) -> pa.Table:
    nothing = pa.nulls(result.num_rows, pa.list_(pa.struct(merger.partial_schema)))
    return pa.table({PARTIAL: nothing, RESULT: result.to_struct_array()})


def _table(structs: pa.StructArray, schema: pa.Schema) -> pa.Table:
    """Spark gives timestamps in the session's zone; `schema` has them in UTC."""
    return pa.Table.from_arrays(structs.flatten(), names=schema.names).cast(schema)


def _unpacked(batch: pa.RecordBatch, name: str, keys: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    own = [batch.column(field.name).cast(field.type) for field in keys]
    fields = _table(batch.column(name), schema).combine_chunks()
    columns = [column.combine_chunks() for column in fields.columns]
    return pa.RecordBatch.from_arrays([*own, *columns], names=[*keys.names, *schema.names])
