"""Keys from a column of a parquet file, or of a folder of them, read row group by row group.

Separate from the other streams because it alone reads files. Only the distinct keys are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from skewless.errors import ColumnError, SettingError
from skewless.simulate.compiled import Int32s
from skewless.simulate.streams.arrow_keys import KeyType, key_type
from skewless.simulate.streams.keyhash import SPARK_SEED
from skewless.simulate.streams.stream import CHUNK, Stream


class ParquetStream(Stream):
    """The rows of one column, in file order; missing keys travel together under the name `null`.

    Of a folder every file `*.parquet` is read, in order of name, subfolders too; files and folders whose name
    begins with `_` or `.` are passed over, as Spark does.
    """

    def __init__(self, path: str | Path, column: str) -> None:
        self.column, self.label = column, Path(path).stem
        self.paths = _files(Path(path))
        self.kind, self.tuples = _check(self.paths, column)
        self.numbers: dict[Any, int] = {}
        self.names: list[Any] = []
        self._hashes = np.zeros(0, dtype=np.int32)

    def chunks(self) -> Iterator[Int32s]:
        for path in self.paths:
            for batch in _open(path).iter_batches(batch_size=CHUNK, columns=[self.column]):
                encoded = self.kind.plain(batch.column(0)).dictionary_encode(null_encoding="encode")
                yield self._number(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]

    def _number(self, values: list[Any]) -> Int32s:
        fresh = [value for value in values if value not in self.numbers]
        for value in fresh:
            self.numbers[value] = len(self.names)
            self.names.append(value)
        if fresh:
            self._hashes = np.concatenate([self._hashes, _hashes(fresh, self.kind)])
        return np.fromiter((self.numbers[value] for value in values), dtype=np.int32, count=len(values))

    @property
    def hashes(self) -> Int32s:
        return self._hashes

    def name_of(self, key: int) -> str:
        name = self.names[key]
        return "null" if name is None else self.kind.name(name)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = sorted(path.rglob("*.parquet"))
    visible = [
        file
        for file in inside
        if file.is_file() and not any(part.startswith(("_", ".")) for part in file.relative_to(path).parts)
    ]
    if not visible:
        raise SettingError(f"the folder {path} has no parquet file. Give one whose files end in .parquet.")
    return visible


def _check(paths: list[Path], column: str) -> tuple[KeyType, int]:
    """What the column is, the same in all files, and how many rows they have."""
    first, tuples = None, 0
    for path in paths:
        file = _open(path)
        schema = file.schema_arrow
        if column not in schema.names:
            raise ColumnError(f"{path} has no column {column!r}. It has {', '.join(schema.names)}.")
        kind = schema.field(column).type
        first = kind if first is None else first
        if kind != first:
            raise ColumnError(
                f"column {column!r} is of type {first} in {paths[0]} and of type {kind} in {path}. Give "
                "files with one schema."
            )
        tuples += file.metadata.num_rows
    found = key_type(first)
    if found is None:
        raise ColumnError(
            f"column {column!r} of {paths[0]} is of type {first}. Give a column of integers, texts, floats, "
            "decimals, dates, timestamps or bytes."
        )
    return found, tuples


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


def _hashes(values: list[Any], kind: KeyType) -> Int32s:
    """Spark's hashes; a missing key hashes to the seed."""
    missing = np.array([value is None for value in values])
    present = [value for value in values if value is not None]
    hashes = np.full(len(values), SPARK_SEED, dtype=np.int32)
    if present:
        hashes[~missing] = kind.hashes(present)
    return hashes
