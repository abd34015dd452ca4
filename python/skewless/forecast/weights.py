"""Arrays as bytes, and weights as a file: how a trained network crosses processes and restarts.

Separate from the network because a file may be damaged, old, or of another kind, and all of that is told
here. There is no pickle: reading a file runs nothing.

    magic 6 bytes | version u16 | CRC-32 of the body u32 | length of the header u32 | header | arrays

The header is JSON: name, type and shape of each array, in the order in which their bytes follow. All numbers
are little-endian.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.errors import ForecastError
from skewless.forecast.gru import sizes

MAGIC, VERSION = b"SKWGRU", 1
MOST_BYTES = 64 << 20
TYPES = ("<f4", "<f8", "<i4", "<i8")
_HEAD = struct.Struct("<6sHII")
ADVICE = "Delete it; it is made anew."
Arrays = Mapping[str, NDArray[Any]]


def pack(arrays: Arrays) -> bytes:
    """
    >>> unpack(pack({"mean": np.array([0.5, 0.25])}))
    {'mean': array([0.5 , 0.25])}
    """
    little = {name: np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")) for name, a in arrays.items()}
    header = json.dumps(
        [[name, array.dtype.str, list(array.shape)] for name, array in little.items()]
    ).encode()
    body = header + b"".join(array.tobytes() for array in little.values())
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body), len(header)) + body


def unpack(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of these bytes; anything but what `pack` made is an error that says what is wrong."""
    if len(data) < _HEAD.size or data[: len(MAGIC)] != MAGIC:
        raise ForecastError(f"these {len(data)} bytes are no weights of Skewless. {ADVICE}")
    _, version, checksum, length = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ForecastError(f"the weights are of version {version}, this release reads {VERSION}. {ADVICE}")
    body = data[_HEAD.size :]
    if zlib.crc32(body) != checksum:
        raise ForecastError(f"the weights are damaged or cut short: their checksum does not fit. {ADVICE}")
    try:
        return _arrays(json.loads(body[:length]), body, length)
    except (ValueError, TypeError, KeyError) as error:
        raise ForecastError(f"the header of the weights makes no sense ({error}). {ADVICE}") from error


def _arrays(header: Any, body: bytes, at: int) -> dict[str, NDArray[Any]]:
    found = {}
    for name, kind, shape in header:
        if kind not in TYPES or not all(isinstance(size, int) and size >= 0 for size in shape):
            raise ValueError(f"array {name!r} of type {kind!r} and shape {shape}")
        count = math.prod(shape)
        found[str(name)] = np.frombuffer(body, kind, count, at).reshape(shape).copy()
        at += count * np.dtype(kind).itemsize
    return found


def checked(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """These arrays, if they are the weights of a network and the hashes of its keys."""
    keys = len(arrays.get("key_hashes", ()))
    hidden = len(arrays.get("attention_v", ()))
    expected = {**sizes(keys + 1, hidden), "key_hashes": (keys,)}
    shapes = {name: array.shape for name, array in arrays.items() if name in expected}
    if not keys or not hidden or shapes != expected:
        raise ForecastError(f"the weights do not fit each other: shapes {shapes}. {ADVICE}")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ForecastError(f"the weights {name!r} are not finite. {ADVICE}")
    return {name: arrays[name] for name in expected}


def save(path: Path, weights: Arrays) -> None:
    """Writes the file in one step: a reader sees the old one or the new one."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_bytes(pack(weights))
        os.replace(hidden, path)
    except OSError as error:
        raise ForecastError(
            f"the weights cannot be written to {path}: {error}. Give a folder that the driver can write to."
        ) from error


def load(path: Path) -> dict[str, NDArray[Any]] | None:
    """The weights of the file; None if there is none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ForecastError(
                f"{path} has more than {MOST_BYTES >> 20} MiB, no weights are so large. {ADVICE}"
            )
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ForecastError(f"the weights in {path} cannot be read: {error}. {ADVICE}") from error
    try:
        return checked(unpack(data))
    except ForecastError as error:
        raise ForecastError(f"{path}: {error}") from error
