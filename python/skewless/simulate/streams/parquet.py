"""Keys from a column of a parquet file, read row group by row group.

Separate from the other streams because it alone needs pyarrow. Only the distinct keys are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from skewless.errors import ColumnError, SettingError
from skewless.simulate.compiled import Int32s
from skewless.simulate.streams.stream import CHUNK, Stream, hashes_of


class ParquetStream(Stream):
    """The rows of one column, in file order; missing keys travel together under the name `null`."""

    def __init__(self, path: str | Path, column: str) -> None:
        self.path, self.column = Path(path), column
        file = _open(self.path)
        if column not in file.schema_arrow.names:
            raise ColumnError(
                f"{path} has no column {column!r}. It has {', '.join(file.schema_arrow.names)}."
            )
        _check_type(path, column, file.schema_arrow.field(column).type)
        self.tuples, self.label = file.metadata.num_rows, self.path.stem
        self.numbers: dict[Any, int] = {}
        self.names: list[Any] = []
        self._hashes = np.zeros(0, dtype=np.int32)

    def chunks(self) -> Iterator[Int32s]:
        for batch in _open(self.path).iter_batches(batch_size=CHUNK, columns=[self.column]):
            column = batch.column(0)
            plain = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
            encoded = plain.dictionary_encode(null_encoding="encode")
            yield self._number(encoded.dictionary)[encoded.indices.to_numpy()]

    def _number(self, dictionary: Any) -> Int32s:
        values = dictionary.to_pylist()
        fresh = [value for value in values if value not in self.numbers]
        for value in fresh:
            self.numbers[value] = len(self.names)
            self.names.append(value)
        if fresh:
            self._hashes = np.concatenate([self._hashes, _hashes(fresh, dictionary.type)])
        return np.fromiter((self.numbers[value] for value in values), dtype=np.int32, count=len(values))

    @property
    def hashes(self) -> Int32s:
        return self._hashes

    def name_of(self, key: int) -> str:
        name = self.names[key]
        return "null" if name is None else str(name)


def _open(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SettingError(
            "Reading parquet needs pyarrow, which is missing. Install skewless[simulate]."
        ) from error
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise SettingError(f"there is no file {path}. Give the path of a parquet file.") from error
    except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise SettingError(
            f"{path} cannot be read as parquet ({str(error).splitlines()[0]}). Give a parquet file."
        ) from error


def _check_type(path: str | Path, column: str, kind: Any) -> None:
    from pyarrow import types

    plain = (
        types.is_integer,
        types.is_floating,
        types.is_string,
        types.is_large_string,
        types.is_boolean,
        types.is_dictionary,
    )
    if not any(check(kind) for check in plain):
        raise ColumnError(
            f"column {column!r} of {path} is of type {kind}. Give a column of integers, texts or floats."
        )


def _hashes(values: list[Any], kind: Any) -> Int32s:
    """Spark's hashes; a missing key hashes to the seed."""
    missing = np.array([value is None for value in values])
    present = [value for value in values if value is not None]
    hashes = np.full(len(values), 42, dtype=np.int32)
    if present:
        narrow = str(kind) in ("int8", "int16", "int32", "bool", "date32[day]")
        hashes[~missing] = hashes_of(np.array(present, dtype=np.int32) if narrow else np.array(present))
    return hashes
