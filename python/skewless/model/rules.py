"""What makes a table valid, whether its parts come from a user, a plan or a file.

Separate from the table, which says what an entry means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skewless.errors import TableError

MAX_PARTITIONS = 1 << 24


def check_hashes(hashes: NDArray[np.int64]) -> None:
    outside = hashes[(hashes < -(1 << 31)) | (hashes >= 1 << 31)]
    if len(outside):
        raise TableError(
            f"key hash {outside[0]} does not fit 32 bits. Use the hash that Spark computes "
            "(skewless.key_hash)."
        )


def check(
    epoch: int,
    partitions: int,
    move_hashes: NDArray[np.int64],
    move_targets: NDArray[np.int64],
    split_hashes: NDArray[np.int64],
    split_offsets: NDArray[np.int64],
    split_targets: NDArray[np.int64],
) -> None:
    for what, number in (("partitions", partitions), ("epoch", epoch)):
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise TableError(f"{what} is {number!r}. Give a whole number.")
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise TableError(
            f"{partitions} partitions: a shuffle has 1 to {MAX_PARTITIONS}. Give the shuffle's own number."
        )
    if not 0 <= epoch < 1 << 63:
        raise TableError(f"epoch {epoch} is not a count. Epochs start at 0 and are given out by publish.")
    hashes = np.concatenate([move_hashes, split_hashes])
    check_hashes(hashes)
    values, counts = np.unique(hashes, return_counts=True)
    if np.any(counts > 1):
        raise TableError(f"key hash {values[counts > 1][0]} has two entries. Give each key hash one entry.")
    if np.any(np.diff(move_hashes) <= 0) or np.any(np.diff(split_hashes) <= 0):
        raise TableError("the entries are not in order of key hash. The bytes were not written by Skewless.")
    widths = np.diff(split_offsets)
    if np.any(widths < 2) or len(split_targets) != split_offsets[-1]:
        raise TableError(
            "an entry has an empty target list, or lists do not add up. Give each entry at least one target."
        )
    targets = np.concatenate([move_targets, split_targets])
    bad = targets[(targets < 0) | (targets >= partitions)]
    if len(bad):
        raise TableError(
            f"target {bad[0]} is not a partition: there are {partitions}, numbered from 0. Correct the "
            "target."
        )
    owner = np.repeat(np.arange(len(widths)), widths)
    if len(np.unique(owner * np.int64(partitions) + split_targets)) != len(split_targets):
        raise TableError("a split lists one target twice. List each target once.")


def check_rows(widths: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    if len(widths) != len(rows):
        raise TableError(f"{len(widths)} splits but {len(rows)} numbers of rows. The bytes are damaged.")
    bad = np.flatnonzero((rows < 1) | (widths % np.maximum(rows, 1) != 0))
    if len(bad):
        raise TableError(
            f"{rows[bad[0]]} rows do not divide {widths[bad[0]]} targets: the grid of a split would have "
            "holes. Give each row as many targets."
        )
