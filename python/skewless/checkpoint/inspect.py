"""What Skewless keeps in a query's checkpoint, read without Spark, and whether the chain of pins and tables
is whole.

Separate from the JVM's `PinLog`, which stops at the first file it cannot trust: this one goes on and names
every such file.

    metadata                      Spark's: the query's id
    offsets/<batch>               Spark's: written before a batch is planned
    commits/<batch>               Spark's: written when it is done
    state                         Spark's: there if the query is stateful
    _skewless/tables/<epoch>      a table's bytes
    _skewless/pins/<batch>        from this batch on the query runs under that epoch
    _skewless/swaps/<batch>       what the swap of that batch moved; for people, nothing depends on it
    _skewless/moves/<batch>-<run> scratch of a swap
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from skewless.checkpoint.folder import Folder, open_folder, size_of
from skewless.errors import CheckpointError, TableError
from skewless.model.codec import MAX_BODY_BYTES
from skewless.model.table import Table

PROVIDER = "org.apache.spark.sql.skewless.SkewlessStateStoreProvider"
FORMAT = 1

_HOME = "_skewless"
_TABLES, _PINS, _SWAPS, _MOVES = (f"{_HOME}/{name}" for name in ("tables", "pins", "swaps", "moves"))
_MOST_JSON_BYTES = 64 << 10
_MOST_TABLE_BYTES = MAX_BODY_BYTES + 1024
_MOST_OFFSETS_BYTES = 1 << 20  # the settings are in the second line
_PIN_FIELDS = {"batch": int, "epoch": int, "digest": str, "partitions": int, "queryId": str}
_SWAP_COUNTS = dict.fromkeys(
    ("batch", "epoch", "fromEpoch", "keyHashes", "rows", "bytes", "stateBytes", "exportMs", "batchMs"), int
)
_SWAP_FIELDS = {**_SWAP_COUNTS, "sources": list, "targets": list}


@dataclass(frozen=True)
class Pin:
    """From batch `batch` on, until the next pin, the query runs under table `epoch`."""

    batch: int
    epoch: int
    digest: str
    partitions: int
    query_id: str


@dataclass(frozen=True)
class StoredSwap:
    """What a swap moved: state rows and their bytes, from and to which partitions."""

    batch: int
    epoch: int
    from_epoch: int
    key_hashes: int
    rows: int
    state_bytes: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    export_ms: int
    batch_ms: int


@dataclass(frozen=True)
class SplitKey:
    """A key hash whose rows are spread: those of which side of a join, among how many places, and where."""

    key_hash: int
    side: str
    left_width: int
    right_width: int
    targets: tuple[int, ...]


@dataclass(frozen=True)
class Epoch:
    """A pin, the size of its table (None: the table cannot be read) and its swap, if one is recorded."""

    pin: Pin
    moves: int | None
    splits: int | None
    swap: StoredSwap | None
    split_keys: tuple[SplitKey, ...] = ()


@dataclass(frozen=True)
class Scratch:
    """State on its way to another partition, of a swap in flight or of a driver that died."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as found. `unnamed` are epochs of tables that no readable pin names; `notes` are oddities
    that do no harm."""

    location: str
    published: bool
    query_id: str | None
    newest_offset: int | None
    newest_commit: int | None
    provider: str | None
    shuffle_partitions: int | None
    epochs: tuple[Epoch, ...]
    unnamed: tuple[int, ...]
    scratch: tuple[Scratch, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return not self.problems

    @property
    def next_batch(self) -> int:
        """The batch that runs next: the newest one again if it is not committed."""
        if self.newest_offset is None:
            return 0
        committed = self.newest_commit is not None and self.newest_commit >= self.newest_offset
        return self.newest_offset + 1 if committed else self.newest_offset

    @property
    def epoch_in_force(self) -> int | None:
        """The epoch of the next batch, 0 for plain hashing; None if the chain is broken and nobody can
        tell."""
        if not self.whole:
            return None
        return max(
            (epoch.pin.epoch for epoch in self.epochs if epoch.pin.batch <= self.next_batch), default=0
        )

    @property
    def waiting(self) -> tuple[Pin, ...]:
        """Pins of batches that have not started."""
        started = -1 if self.newest_offset is None else self.newest_offset
        return tuple(epoch.pin for epoch in self.epochs if epoch.pin.batch > started)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        derived = {"next_batch": self.next_batch, "epoch_in_force": self.epoch_in_force, "whole": self.whole}
        return {**asdict(self), **derived, "waiting": [asdict(pin) for pin in self.waiting]}


def inspect(location: str | Path) -> Checkpoint:
    """Reads the checkpoint at a path or URI; a CheckpointError if there is none, or it cannot be reached.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = Path(home, "metadata").write_text('{"id": "7d0c"}')
    ...     found = inspect(home)
    >>> found.published, found.query_id, found.whole
    (False, '7d0c', True)
    """
    try:
        return inspect_folder(str(location), open_folder(str(location)))
    except OSError as error:
        raise CheckpointError(
            f"{location} cannot be read: {error}. Check your rights on it, and try again."
        ) from error


def inspect_folder(location: str, folder: Folder) -> Checkpoint:
    """`inspect` of a folder that is open already."""
    names = {entry.name for entry in folder.entries("")}
    if not names & {"metadata", "offsets", "commits", _HOME}:
        raise CheckpointError(
            f"{location} holds no checkpoint: no metadata, no offsets, no commits. Give the folder that is "
            "the query's checkpointLocation."
        )
    # Pins before tables: a publish writes the table first, so that a running query's pin is never seen
    # without it.
    problems: list[str] = []
    pins = _pins(folder, problems)
    query_id = _query_id(folder)
    offsets, commits = _numbers(folder, "offsets"), _numbers(folder, "commits")
    provider, shuffle_partitions = _settings(folder, offsets[-1]) if offsets else (None, None)
    if "metadata" in names:
        problems += _owner_problems(pins, query_id)
    problems += _order_problems(pins)
    # `configure` sets the provider for stateless queries too; only a stateful one has a folder of state.
    stateful = provider == PROVIDER and "state" in names
    problems += _partition_problems(pins, shuffle_partitions if stateful else None)
    swaps, notes = _swaps(folder, pins)
    epochs = [_epoch(folder, pin, swaps.get(pin.batch), problems) for pin in pins]
    named = {pin.epoch for pin in pins}
    return Checkpoint(
        location=location,
        published=_HOME in names,
        query_id=query_id,
        newest_offset=offsets[-1] if offsets else None,
        newest_commit=commits[-1] if commits else None,
        provider=provider,
        shuffle_partitions=shuffle_partitions,
        epochs=tuple(epochs),
        unnamed=tuple(epoch for epoch in _numbers(folder, _TABLES) if epoch not in named),
        scratch=tuple(_scratch(folder)),
        notes=tuple(notes),
        problems=tuple(problems),
    )


# -- Spark's own files ---------------------------------------------------------------------------------------


def _query_id(folder: Folder) -> str | None:
    query_id = _object(_read(folder, "metadata", _MOST_JSON_BYTES)).get("id")
    return query_id if isinstance(query_id, str) else None


def _settings(folder: Folder, batch: int) -> tuple[str | None, int | None]:
    """State store provider and shuffle partitions of a batch, each None where Spark wrote it in a way we do
    not know."""
    lines = (_read(folder, f"offsets/{batch}", _MOST_OFFSETS_BYTES) or b"").split(b"\n")
    conf = _object(lines[1]).get("conf") if len(lines) > 1 else None
    if not isinstance(conf, dict):
        return None, None
    provider = conf.get("spark.sql.streaming.stateStore.providerClass")
    partitions = str(conf.get("spark.sql.shuffle.partitions"))
    return provider if isinstance(provider, str) else None, int(partitions) if re.fullmatch(
        "[0-9]{1,9}", partitions
    ) else None


# -- pins and tables -----------------------------------------------------------------------------------------


def _pins(folder: Folder, problems: list[str]) -> list[Pin]:
    pins = []
    for batch in _numbers(folder, _PINS):
        try:
            pins.append(_pin(folder, batch))
        except CheckpointError as error:
            problems.append(str(error))
    return pins


def _pin(folder: Folder, batch: int) -> Pin:
    path = f"{_PINS}/{batch}"
    values = _record(folder, path, _PIN_FIELDS)
    if values["batch"] != batch:
        raise CheckpointError(f"{path} says that it pins batch {values['batch']}.")
    return Pin(batch, values["epoch"], values["digest"], values["partitions"], values["queryId"])


def _epoch(folder: Folder, pin: Pin, swap: StoredSwap | None, problems: list[str]) -> Epoch:
    path = f"{_TABLES}/{pin.epoch}"
    data = _read(folder, path, _MOST_TABLE_BYTES)
    if data is None:
        problems.append(f"{path} is missing, and the pin of batch {pin.batch} names it.")
        return Epoch(pin, None, None, swap)
    try:
        table = Table.decode(data)
    except TableError as error:
        problems.append(f"{path} cannot be read: {error}")
        return Epoch(pin, None, None, swap)
    for what, found, named in (
        ("digest", table.digest, pin.digest),
        ("epoch", table.epoch, pin.epoch),
        ("number of partitions", table.partitions, pin.partitions),
    ):
        if found != named:
            problems.append(f"{path} has {what} {found}, the pin of batch {pin.batch} names {named}.")
    return Epoch(pin, len(table.move_hashes), len(table.split_hashes), swap, tuple(_split_keys(table)))


def _split_keys(table: Table) -> Iterator[SplitKey]:
    for key_hash in table.split_hashes.tolist():
        split = table.split_of(key_hash)
        assert split is not None, f"key hash {key_hash} is among the splits"
        yield SplitKey(key_hash, split.side, split.left_width, split.right_width, split.targets)


def _owner_problems(pins: Sequence[Pin], query_id: str | None) -> Iterator[str]:
    if pins and query_id is None:
        yield "metadata does not tell the query's id, which the pins have to name."
        return
    for pin in pins:
        if pin.query_id != query_id:
            yield f"{_PINS}/{pin.batch} belongs to query {pin.query_id}, the checkpoint to query {query_id}."


def _order_problems(pins: Sequence[Pin]) -> Iterator[str]:
    for before, after in pairwise(pins):
        if after.epoch <= before.epoch:
            yield (
                f"{_PINS}/{after.batch} names epoch {after.epoch}, and the pin of batch {before.batch} "
                f"before it epoch {before.epoch}: epochs grow with batches."
            )


def _partition_problems(pins: Sequence[Pin], state_partitions: int | None) -> Iterator[str]:
    for pin in pins:
        if state_partitions is not None and pin.partitions != state_partitions:
            yield (
                f"{_PINS}/{pin.batch} is for {pin.partitions} partitions, the query's state lies in "
                f"{state_partitions}, says spark.sql.shuffle.partitions in the newest file of offsets."
            )


# -- what nothing depends on ---------------------------------------------------------------------------------


def _swaps(folder: Folder, pins: Sequence[Pin]) -> tuple[dict[int, StoredSwap], list[str]]:
    """The records by batch, and what is odd about them."""
    epochs = {pin.batch: pin.epoch for pin in pins}
    swaps, notes = {}, []
    for batch in _numbers(folder, _SWAPS):
        try:
            swap = _swap(folder, batch)
        except CheckpointError as error:
            notes.append(f"{error} Only people read it; the query does not.")
            continue
        if epochs.get(batch) == swap.epoch:
            swaps[batch] = swap
        elif (
            pins and batch > pins[0].batch
        ):  # purging deletes pins first: an older record may have outlived its pin
            notes.append(
                f"{_SWAPS}/{batch} tells of a swap to epoch {swap.epoch} that no readable pin of that batch "
                "names."
            )
    return swaps, notes


def _swap(folder: Folder, batch: int) -> StoredSwap:
    path = f"{_SWAPS}/{batch}"
    values = _record(folder, path, _SWAP_FIELDS)
    if values["batch"] != batch:
        raise CheckpointError(f"{path} says that it is of batch {values['batch']}.")
    if any(type(partition) is not int for partition in (*values["sources"], *values["targets"])):
        raise CheckpointError(f"{path} has sources or targets that are not numbers.")
    return StoredSwap(
        batch=batch,
        epoch=values["epoch"],
        from_epoch=values["fromEpoch"],
        key_hashes=values["keyHashes"],
        rows=values["rows"],
        state_bytes=values["bytes"],
        sources=tuple(values["sources"]),
        targets=tuple(values["targets"]),
        export_ms=values["exportMs"],
        batch_ms=values["batchMs"],
    )


def _scratch(folder: Folder) -> list[Scratch]:
    names = sorted(entry.name for entry in folder.entries(_MOVES))
    return [Scratch(name, size_of(folder, f"{_MOVES}/{name}")) for name in names]


# -- files ---------------------------------------------------------------------------------------------------


def _numbers(folder: Folder, path: str) -> list[int]:
    """The files of a log: those that a number names, as `PinLog` and Spark take them."""
    return sorted(
        int(entry.name) for entry in folder.entries(path) if re.fullmatch("[0-9]{1,18}", entry.name)
    )


def _read(folder: Folder, path: str, most_bytes: int) -> bytes | None:
    try:
        return folder.read(path, most_bytes)
    except FileNotFoundError:
        return None


def _object(data: bytes | None) -> dict[str, Any]:
    """A JSON object; empty if the bytes are not one."""
    try:
        values = json.loads(data or b"")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _record(folder: Folder, path: str, fields: Mapping[str, type]) -> dict[str, Any]:
    """A JSON object of ours with all its fields; else a CheckpointError that names the file."""
    data = _read(folder, path, _MOST_JSON_BYTES)
    if data is None:
        raise CheckpointError(f"{path} is missing.")
    values = _object(data)
    if not values:
        raise CheckpointError(f"{path} is not a JSON object, or an empty one.")
    if type(values.get("format")) is not int or values["format"] != FORMAT:
        raise CheckpointError(f"{path} is of format {values.get('format')!r}, this release reads {FORMAT}.")
    wrong = [name for name, kind in fields.items() if type(values.get(name)) is not kind]
    if wrong:
        raise CheckpointError(f"{path} lacks {', '.join(wrong)}, or has it as another type.")
    return values
