"""What Spark takes a parquet column to be, and so how it hashes the keys in it.

Separate from the reader because it is the one place that knows Arrow's types. Each type has three things: the
values that decide whether two keys are one (`plain`), their hashes, and their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from skewless.simulate.compiled import Int32s
from skewless.simulate.streams import keyhash
from skewless.simulate.streams.stream import UINT64_DIGITS

SPARK_DIGITS = 38  # the longest decimal that Spark knows


@dataclass(frozen=True)
class KeyType:
    """How to treat the keys of one type: `plain` takes and gives an Arrow array, `hashes` and `name` take
    plain values."""

    hashes: Callable[[Any], Int32s]
    name: Callable[[Any], str] = str
    plain: Callable[[Any], Any] = lambda column: column


def key_type(kind: Any) -> KeyType | None:
    """How Spark treats a column of this Arrow type; None for types that it does not partition by, or reads
    otherwise."""
    from pyarrow import types

    if not types.is_dictionary(kind):
        return _plain_type(kind)
    inner = _plain_type(kind.value_type)
    if inner is None:
        return None
    return KeyType(inner.hashes, inner.name, lambda column: inner.plain(column.dictionary_decode()))


def _plain_type(kind: Any) -> KeyType | None:
    from pyarrow import types

    if types.is_floating(kind) and kind.bit_width > 16:
        return _float_type(np.float32 if kind.bit_width == 32 else np.float64)
    if types.is_timestamp(kind):
        return KeyType(keyhash.of_int64s, lambda micros: str(np.datetime64(micros, "us")), _micros)
    if types.is_date(kind):
        return KeyType(keyhash.of_int32s, lambda days: str(np.datetime64(days, "D")), _days)
    if types.is_decimal(kind) and kind.precision <= SPARK_DIGITS:
        return KeyType(lambda values: keyhash.of_decimals(values, kind.precision), "{:f}".format)
    return _of_integers(kind) if types.is_integer(kind) or types.is_boolean(kind) else _of_bytes(kind)


def _of_integers(kind: Any) -> KeyType:
    """Spark has no unsigned types and reads the next larger signed one, and a decimal in place of 64 bits."""
    unsigned = str(kind).startswith("u")
    if unsigned and kind.bit_width == 64:
        return KeyType(lambda values: keyhash.of_decimals(values, UINT64_DIGITS))
    narrow = kind.bit_width <= (16 if unsigned else 32)
    return KeyType(keyhash.of_int32s if narrow else keyhash.of_int64s)


def _of_bytes(kind: Any) -> KeyType | None:
    import pyarrow as pa
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return KeyType(keyhash.of_texts, str, lambda column: column.cast(pa.large_string()))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return KeyType(keyhash.of_texts, bytes.hex, lambda column: column.cast(pa.large_binary()))
    return None


def _float_type(dtype: type[np.floating]) -> KeyType:
    """Floats are compared by the bits that Spark hashes, so that 0.0 is -0.0 and NaN is NaN."""
    bits = np.int32 if dtype is np.float32 else np.int64

    def plain(column: Any) -> Any:
        import pyarrow as pa

        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        return pa.array(keyhash.float_bits(values), mask=column.is_null().to_numpy(zero_copy_only=False))

    hashes = keyhash.of_int32s if bits is np.int32 else keyhash.of_int64s
    return KeyType(hashes, lambda value: str(bits(value).view(dtype)), plain)


def _micros(column: Any) -> Any:
    """Microseconds since 1970, as Spark stores a timestamp; of nanoseconds, the whole microseconds."""
    import pyarrow as pa

    per_micro = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
    times, parts = per_micro[column.type.unit]
    counts = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(counts * times // parts, mask=column.is_null().to_numpy(zero_copy_only=False))


def _days(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.date32()).cast(pa.int32())
