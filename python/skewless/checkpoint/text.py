"""A checkpoint as text, as `skewless inspect` prints it.

Separate from the reading so that a program gets facts, and from the simulator's tables because this must run
where only click is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skewless.checkpoint.inspect import Checkpoint, Epoch
from skewless.wording import amount

COLUMNS = (
    "epoch", "from batch", "moves", "splits", "partitions", "rows", "bytes", "sources -> targets",
    "export ms", "batch ms",
)  # fmt: skip


def checkpoint_text(found: Checkpoint) -> str:
    """Facts first; the last part says whether the chain is whole."""
    return "\n".join(_lines(found))


def _lines(found: Checkpoint) -> Iterator[str]:
    yield f"checkpoint  {found.location}"
    yield f"query       {found.query_id or 'unknown'}"
    yield (
        f"batches     newest offset {_or_none(found.newest_offset)}, "
        f"newest commit {_or_none(found.newest_commit)}"
    )
    yield f"provider    {found.provider or 'unknown'}"
    if not found.published:
        yield "no table was ever published to this query: there is no _skewless folder."
    else:
        yield from _published_lines(found)
    yield from _verdict(found)


def _published_lines(found: Checkpoint) -> Iterator[str]:
    if found.epochs:
        yield ""
        yield from _grid([COLUMNS, *(_row(epoch) for epoch in found.epochs)])
        yield ""
    again = " (started, not committed)" if found.next_batch == found.newest_offset else ""
    yield f"next batch: {found.next_batch}{again}, {_in_force(found)}"
    yield from _split_lines(found)
    for pin in found.waiting:
        yield f"waiting: epoch {pin.epoch}, for batch {pin.batch}, which has not started"
    if found.unnamed:
        epochs = ", ".join(map(str, found.unnamed))
        yield f"unnamed tables: {epochs} (no readable pin names them: a publish or purge that did not finish)"
    for scratch in found.scratch:
        size = amount(scratch.size_bytes)
        yield (
            f"scratch: {scratch.name}, {size} "
            "(a swap in flight, or a driver that died; the next run deletes it)"
        )
    for note in found.notes:
        yield f"note: {note}"


def _split_lines(found: Checkpoint) -> Iterator[str]:
    """The splits of the table in force."""
    for epoch in found.epochs:
        for key in epoch.split_keys if epoch.pin.epoch == found.epoch_in_force else ():
            width = f"{key.left_width} x {key.right_width}" if key.side == "both" else str(len(key.targets))
            side = "both sides" if key.side == "both" else f"{key.side} side"
            targets = ", ".join(map(str, key.targets))
            yield f"split: key hash {key.key_hash}, {side}, width {width}, over partitions {targets}"


def _in_force(found: Checkpoint) -> str:
    if found.epoch_in_force is None:
        return "under an epoch that nobody can tell while the chain is broken"
    return (
        f"under epoch {found.epoch_in_force}"
        if found.epoch_in_force
        else "hashed plainly: no pin is at or before it"
    )


def _verdict(found: Checkpoint) -> Iterator[str]:
    if found.whole:
        yield "chain: whole"
        return
    yield "chain: BROKEN"
    yield from (f"  {problem}" for problem in found.problems)
    yield (
        "  Restore these files from a copy of the checkpoint; "
        "the query stops rather than guess how its rows were routed."
    )


def _row(epoch: Epoch) -> list[str]:
    pin, swap = epoch.pin, epoch.swap
    table = ["?" if count is None else str(count) for count in (epoch.moves, epoch.splits)]
    moved = ["-"] * 5
    if swap is not None:
        ways = f"{len(swap.sources)} -> {len(swap.targets)}"
        moved = [
            f"{swap.rows:,}",
            amount(swap.state_bytes),
            ways,
            f"{swap.export_ms:,}",
            f"{swap.batch_ms:,}",
        ]
    return [str(pin.epoch), str(pin.batch), *table, str(pin.partitions), *moved]


def _grid(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def _or_none(number: int | None) -> str:
    return "none" if number is None else str(number)
