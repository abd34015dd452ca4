"""The user's three functions as tasks call them: batch by batch, what they give checked, no more than a few
partials held at a time. It knows Arrow and nothing of Spark's plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from skewless.errors import AggregateError
from skewless.operators.aggregates.aggregate import Aggregate

MOST_HELD = 16
"""So many partials of a key are held before they are merged."""


class Merger:
    """One aggregate, with the Arrow types that Spark expects of it."""

    def __init__(self, aggregate: Aggregate, partial_schema: pa.Schema, result_schema: pa.Schema) -> None:
        self.aggregate = aggregate
        self.partial_schema = partial_schema
        self.result_schema = result_schema

    def partial_of(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """The partial of rows of one key that come in batches."""
        return self.merged(
            conform(
                self.aggregate.partial(pa.Table.from_batches([batch])),
                self.partial_schema,
                "what partial gave",
            )
            for batch in batches
        )

    def merged(self, partials: Iterable[pa.Table]) -> pa.Table:
        """One partial of several. A partial without rows counts as nothing, and one alone is not merged."""
        held: list[pa.Table] = []
        for partial in partials:
            if partial.num_rows:
                held.append(partial)
            if len(held) == MOST_HELD:
                held = [self._merge(held)]
        if not held:
            return self.partial_schema.empty_table()
        return held[0] if len(held) == 1 else self._merge(held)

    def result_of(self, partial: pa.Table) -> pa.Table:
        """What comes out for a key. A key without a partial gives nothing."""
        if self.aggregate.result is None or not partial.num_rows:
            return partial if self.aggregate.result is None else self.result_schema.empty_table()
        return conform(self.aggregate.result(partial), self.result_schema, "what result gave")

    def _merge(self, partials: list[pa.Table]) -> pa.Table:
        together = pa.concat_tables(partials).combine_chunks()
        return conform(self.aggregate.merge(together), self.partial_schema, "what merge gave")


def conform(given: Any, schema: pa.Schema, what: str) -> pa.Table:
    """`given` in the columns and types of `schema`, nothing rounded and nothing cut off.

    >>> wide = pa.schema([("n", pa.int64())])
    >>> conform(pa.table({"n": pa.array([1, 2], pa.int32())}), wide, "what partial gave").schema.types
    [DataType(int64)]
    >>> conform(pa.table({"n": ["1"]}), wide, "what partial gave")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    skewless.errors.AggregateError: what partial gave has a column n of type string where schema= says ...
    """
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if not isinstance(given, pa.Table):
        raise AggregateError(
            f"{what} is a {type(given).__name__}, and a pyarrow.Table is expected. For pandas functions use "
            "skewless.apply_in_pandas."
        )
    if sorted(given.column_names) != sorted(schema.names):
        raise AggregateError(
            f"{what} has the columns {given.column_names}, and schema= says {schema.names}. Give those of "
            "schema=, without the key."
        )
    ordered = given.select(schema.names)
    for field, column in zip(schema, ordered.columns, strict=True):
        if not _alike(column.type, field.type):
            raise AggregateError(
                f"{what} has a column {field.name} of type {column.type} where schema= says {field.type}. "
                "Give that type, or change schema=."
            )
    try:
        return ordered.cast(schema)
    except pa.ArrowInvalid as error:
        raise AggregateError(
            f"{what} does not fit schema=, which says {schema.types}: {error}. Give wider types in schema=."
        ) from error


_KINDS = (
    pa.types.is_integer,
    pa.types.is_floating,
    lambda t: pa.types.is_string(t) or pa.types.is_large_string(t),
    lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
    pa.types.is_timestamp,
    pa.types.is_decimal,
    lambda t: pa.types.is_list(t) or pa.types.is_large_list(t),
    pa.types.is_struct,
    pa.types.is_map,
)


def _alike(given: pa.DataType, expected: pa.DataType) -> bool:
    """Whether one may become the other; the cast then refuses what would lose something."""
    if given == expected or pa.types.is_null(given):
        return True
    return any(kind(given) and kind(expected) for kind in _KINDS)
