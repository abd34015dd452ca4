"""Writes key_hashes.json: Spark's own hash of keys of every type that the simulator reads from parquet.

    python tests/vectors/make_key_hashes.py        # starts Spark; after a change of the columns only

Separate from the test so that the test needs no Spark. Both write the same parquet file; here Spark reads it
and hashes each column, there `ParquetStream` must give the same numbers.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PATH = Path(__file__).with_name("key_hashes.json")
SEED = 20261118
ROWS = 40


def columns() -> dict[str, pa.Array]:
    """Edge cases first, then random values; the last row of each is missing."""
    rng = random.Random(SEED)
    made = {
        "bool": _padded([True, False], pa.bool_(), lambda: rng.random() < 0.5),
        **{f"int{bits}": _integers(rng, bits, signed=True) for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": _integers(rng, bits, signed=False) for bits in (8, 16, 32, 64)},
        "float32": _floats(rng, np.float32, np.uint32, 0x7FC00001),
        "float64": _floats(rng, np.float64, np.uint64, 0x7FF8000000000001),
        "string": _padded(_TEXTS, pa.string(), lambda: _text(rng)),
        "large_string": _padded(_TEXTS, pa.large_string(), lambda: _text(rng)),
        "dictionary": _padded(_TEXTS, pa.string(), lambda: _text(rng)).dictionary_encode(),
        "binary": _padded([b"", b"\0", b"\xff" * 5], pa.binary(), lambda: rng.randbytes(rng.randrange(20))),
        "fixed_binary": _padded([bytes(7)], pa.binary(7), lambda: rng.randbytes(7)),
        "date": _padded([0, -1, -719_162, 2_932_896], pa.date32(), lambda: rng.randrange(-10_000, 40_000)),
        "timestamp_ms": _times(rng, pa.timestamp("ms"), 10**12),
        "timestamp_us": _times(rng, pa.timestamp("us"), 10**15),
        "timestamp_utc": _times(rng, pa.timestamp("us", "UTC"), 10**15),
        **{f"decimal_{p}_{s}": _decimals(rng, p, s) for p, s in ((9, 2), (18, 4), (19, 0), (38, 10))},
    }
    return made


def int96() -> pa.Array:
    """Timestamps to the nanosecond, which Spark reads from parquet's INT96 only."""
    rng = random.Random(SEED)
    return _times(rng, pa.timestamp("ns"), 10**18)


_TEXTS = ["", "a", "Spark", "é", "𝄞", "a\0", "a", "\0", "\0\0", "a\0b", "0123456789" * 100]


def _padded(edges: list[Any], kind: pa.DataType, draw: Any) -> pa.Array:
    return pa.array([*edges, *(draw() for _ in range(ROWS - len(edges) - 1)), None], kind)


def _integers(rng: random.Random, bits: int, signed: bool) -> pa.Array:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    kind = pa.type_for_alias(f"{'' if signed else 'u'}int{bits}")
    return _padded([0, 1, low, high, high - 1], kind, lambda: rng.randint(low, high))


def _floats(rng: random.Random, dtype: Any, bits: Any, odd_nan: int) -> pa.Array:
    edges = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, np.finfo(dtype).max, np.finfo(dtype).tiny]
    random_values = [rng.gauss(0, 1e6) for _ in range(ROWS - len(edges) - 2)]
    values = np.array([*edges, 0.0, *random_values, 0.0], dtype=dtype)
    values.view(bits)[len(edges)] = odd_nan
    return pa.array(values, mask=np.arange(ROWS) == ROWS - 1)


def _text(rng: random.Random) -> str:
    return "".join(chr(rng.choice([rng.randrange(1, 128), rng.randrange(0x4E00, 0x9FFF)])) for _ in range(9))


def _times(rng: random.Random, kind: pa.TimestampType, most: int) -> pa.Array:
    return _padded([0, 1, -1, -most, most], kind, lambda: rng.randrange(-most, 3 * most))


def _decimals(rng: random.Random, precision: int, scale: int) -> pa.Array:
    most = 10**precision - 1
    edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, most, -most]
    with localcontext() as context:
        context.prec = 60
        drawn = [rng.randint(-most, most) for _ in range(ROWS - len(edges) - 1)]
        values = [Decimal(number).scaleb(-scale) for number in [*edges, *drawn]]
    return pa.array([*values, None], pa.decimal128(precision, scale))


def write(folder: Path) -> tuple[Path, Path]:
    """The file of all columns, and that of INT96."""
    pq.write_table(pa.table(columns()), folder / "keys.parquet")
    pq.write_table(
        pa.table({"int96": int96()}), folder / "int96.parquet", use_deprecated_int96_timestamps=True
    )
    return folder / "keys.parquet", folder / "int96.parquet"


def make() -> dict[str, list[int]]:
    """Spark's hashes of each column, row by row."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    hashes: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder)):
            df = spark.read.parquet(str(path)).coalesce(1)
            rows = df.select(*(F.hash(F.col(name)).alias(name) for name in df.columns)).collect()
            hashes |= {name: [row[name] for row in rows] for name in df.columns}
    spark.stop()
    return hashes


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}:{json.dumps(hashes)}" for name, hashes in make().items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    sys.exit(0)
