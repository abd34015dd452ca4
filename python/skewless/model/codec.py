"""A table as bytes: header with format and digest, then the entries as little-endian integers.

Separate from the table because both languages and every checkpoint share this format;
`TableCodec.scala` is its twin.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from skewless.errors import TableError

MAGIC = b"SKWL"
PLAIN_VERSION = 1
GRID_VERSION = 2  # has the rows of each split; only where a split has more than one column
MAX_BODY_BYTES = 256 << 20

_HEADER = struct.Struct("<4sIQ32s")  # magic, format version, body bytes, SHA-256 of the body
_COUNTS = struct.Struct("<qiiii")  # epoch, partitions, moves, splits, split targets
MAX_BYTES = MAX_BODY_BYTES + _HEADER.size

Integers = NDArray[np.integer]
Int64s = NDArray[np.int64]


def pack(
    epoch: int,
    partitions: int,
    move_hashes: Integers,
    move_targets: Integers,
    split_hashes: Integers,
    split_offsets: Integers,
    split_targets: Integers,
    split_rows: Integers,
) -> bytes:
    """The parts of a table as bytes; the targets of split i are split_targets[offset i : offset i + 1]."""
    widths = np.diff(split_offsets)
    counts = _COUNTS.pack(epoch, partitions, len(move_hashes), len(split_hashes), len(split_targets))
    arrays = [move_hashes, move_targets, split_hashes, widths, split_targets]
    version = PLAIN_VERSION if np.array_equal(split_rows, widths) else GRID_VERSION
    if version == GRID_VERSION:
        arrays.append(split_rows)
    body = counts + b"".join(array.astype("<i4").tobytes() for array in arrays)
    return _HEADER.pack(MAGIC, version, len(body), hashlib.sha256(body).digest()) + body


def unpack(data: bytes) -> tuple[int, int, Int64s, Int64s, Int64s, Int64s, Int64s, Int64s]:
    """What `pack` was given; whether it makes a valid table is for the table to say."""
    version, body = _body(data)
    if len(body) < _COUNTS.size:
        raise TableError(
            f"a table's body has at least {_COUNTS.size} bytes, this one {len(body)}. The bytes are damaged."
        )
    epoch, partitions, moves, splits, targets = _COUNTS.unpack_from(body)
    arrays_of_splits = 3 if version == GRID_VERSION else 2
    expected = _COUNTS.size + 4 * (2 * moves + arrays_of_splits * splits + targets)
    if min(moves, splits, targets) < 0 or expected != len(body):
        raise TableError(
            f"a table of {moves} moves, {splits} splits and {targets} split targets does not take "
            f"{len(body)} bytes. The bytes are damaged, or were not written by Skewless."
        )
    rest = np.frombuffer(body, dtype="<i4", offset=_COUNTS.size).astype(np.int64)
    hashes, aims, split, widths, split_aims, rows = np.split(
        rest, np.cumsum([moves, moves, splits, splits, targets])
    )
    if version == PLAIN_VERSION:
        rows = widths
    elif np.array_equal(rows, widths):
        raise TableError(
            f"a table of format {GRID_VERSION} has no split with columns. The bytes were not written by "
            "Skewless."
        )
    return epoch, partitions, hashes, aims, split, np.concatenate([[0], np.cumsum(widths)]), split_aims, rows


def digest(data: bytes) -> bytes:
    """SHA-256 of the body, as its header says."""
    return data[16:48]


def _body(data: bytes) -> tuple[int, bytes]:
    if len(data) < _HEADER.size:
        raise TableError(
            f"a table has at least {_HEADER.size} bytes, this one {len(data)}. The bytes are cut short."
        )
    magic, version, length, digest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise TableError(
            f"these bytes start with {magic!r}, a table with {MAGIC!r}. They were not written by Skewless."
        )
    if version not in (PLAIN_VERSION, GRID_VERSION):
        raise TableError(
            f"the table is of format {version}, this release reads {PLAIN_VERSION} and {GRID_VERSION}. Use "
            "the Skewless that wrote it."
        )
    if length > MAX_BODY_BYTES or length != len(data) - _HEADER.size:
        raise TableError(
            f"the table declares {length} bytes but {len(data) - _HEADER.size} follow. The bytes are damaged."
        )
    body = data[_HEADER.size :]
    if hashlib.sha256(body).digest() != digest:
        raise TableError(
            "the table's digest does not match its bytes. They were changed after they were written."
        )
    return version, body
