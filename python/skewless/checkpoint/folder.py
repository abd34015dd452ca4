"""A folder to read, on this machine or on another file system: what is in it, and the first bytes of a file.

Separate from what is read so that a checkpoint on HDFS or in an object store is judged by the same code as
one on a local disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from skewless.errors import CheckpointError


@dataclass(frozen=True)
class Entry:
    """A file or folder in a folder."""

    name: str
    is_folder: bool
    size_bytes: int


class Folder(Protocol):
    """Paths are relative to the folder, with `/`. A folder that is not there has no entries; hidden files
    never show."""

    def entries(self, path: str) -> list[Entry]: ...

    def read(self, path: str, most_bytes: int) -> bytes: ...


class LocalFolder:
    """A folder that this machine can open."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entries(self, path: str) -> list[Entry]:
        folder = self.root / path
        return (
            [_local_entry(child) for child in folder.iterdir() if not _hidden(child.name)]
            if folder.is_dir()
            else []
        )

    def read(self, path: str, most_bytes: int) -> bytes:
        with (self.root / path).open("rb") as file:
            return file.read(most_bytes)


class ArrowFolder:
    """A folder on a file system of pyarrow."""

    def __init__(self, files: Any, root: str) -> None:
        self.files, self.root = files, root.rstrip("/")

    def entries(self, path: str) -> list[Entry]:
        from pyarrow.fs import FileSelector

        infos = self.files.get_file_info(
            FileSelector(f"{self.root}/{path}".rstrip("/"), allow_not_found=True)
        )
        return [Entry(i.base_name, not i.is_file, i.size or 0) for i in infos if not _hidden(i.base_name)]

    def read(self, path: str, most_bytes: int) -> bytes:
        with self.files.open_input_stream(f"{self.root}/{path}", compression=None) as stream:
            return bytes(stream.read(most_bytes))


def open_folder(location: str) -> Folder:
    """The folder at a local path, a file: URI, or a URI that pyarrow knows."""
    if "://" in location and not location.startswith("file:"):
        return _remote(location)
    root = Path(unquote(urlsplit(location).path) if location.startswith("file:") else location)
    if not root.is_dir():
        raise CheckpointError(
            f"{location} is not a folder. Give the folder that is the query's checkpointLocation."
        )
    return LocalFolder(root)


def size_of(folder: Folder, path: str) -> int:
    """Bytes of all files below a path."""
    return sum(_sizes(folder, path))


def _sizes(folder: Folder, path: str) -> Iterator[int]:
    for entry in folder.entries(path):
        yield size_of(folder, f"{path}/{entry.name}") if entry.is_folder else entry.size_bytes


def _remote(location: str) -> Folder:
    copy = "Or copy the folder to a local disk and inspect the copy."
    try:
        from pyarrow.fs import FileSystem, FileType
    except ImportError as error:
        raise CheckpointError(
            f"{location} is not on this machine, and reading it needs pyarrow: pip install pyarrow. {copy}"
        ) from error
    scheme, rest = location.split("://", 1)
    # Hadoop's names for S3, which Arrow does not know.
    uri = f"s3://{rest}" if scheme in ("s3a", "s3n") else location
    try:
        files, root = FileSystem.from_uri(uri)
        found = files.get_file_info(root).type
    except (OSError, ValueError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise CheckpointError(
            f"{location} cannot be opened with pyarrow: {reason}. Set up pyarrow for it. {copy}"
        ) from error
    if found != FileType.Directory:
        raise CheckpointError(
            f"{location} is not a folder. Give the folder that is the query's checkpointLocation."
        )
    return ArrowFolder(files, root)


def _local_entry(path: Path) -> Entry:
    is_folder = path.is_dir()
    return Entry(path.name, is_folder, 0 if is_folder else path.stat().st_size)


def _hidden(name: str) -> bool:
    return name.startswith(".")
