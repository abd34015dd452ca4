"""A plan: the next table, the moves that lead to it, and what they are expected to gain and to cost.

Separate from the policies because a plan is a value: it can be shown, refused or replayed without the policy
that made it.

>>> moves = Moves.of([7, 8], sources=[1, 0], targets=[0, 1], state_bytes=[100, 50])
>>> plan = Plan(Table(2, {7: 0, 8: 1}, epoch=1), moves, 0.5, 0.02, seconds=0.01, met=True)
>>> plan.bytes_moved, plan.giving_partitions, plan.changes
(150.0, (0, 1), True)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from skewless.errors import PolicyError
from skewless.model.snapshot import Floats
from skewless.model.split import Split
from skewless.model.table import Int32s, Table


@dataclass(frozen=True, eq=False)
class Moves:
    """Four arrays of one length: which key hash goes from which partition to which, with how many bytes of
    state."""

    key_hashes: Int32s
    sources: Int32s
    targets: Int32s
    state_bytes: Floats

    def __post_init__(self) -> None:
        arrays = (self.key_hashes, self.sources, self.targets, self.state_bytes)
        if len({len(array) for array in arrays}) != 1:
            raise PolicyError(
                "the arrays of a plan's moves differ in length. Give source, target and bytes for each key "
                "hash."
            )
        if np.any(self.sources == self.targets):
            raise PolicyError("a move leads from a partition to itself. Leave out keys that stay.")
        for array in arrays:
            array.setflags(write=False)

    @classmethod
    def of(
        cls, key_hashes: ArrayLike, sources: ArrayLike, targets: ArrayLike, state_bytes: ArrayLike
    ) -> Moves:
        """Moves from arrays or lists of any numeric type; they are copied."""
        hashes, origins, aims = (
            np.array(values, dtype=np.int32) for values in (key_hashes, sources, targets)
        )
        return cls(hashes, origins, aims, np.array(state_bytes, dtype=np.float64))

    @classmethod
    def none(cls) -> Moves:
        return cls.of([], [], [], [])

    def __len__(self) -> int:
        return len(self.key_hashes)


@dataclass(frozen=True)
class PlannedSplit:
    """One key that is split before the plan or after it. A whole key is a split of one target.

    copied_share    what replicas of the other side add to all work, as a share of it
    copied_bytes    state that they take beyond what the key takes anyway
    bytes_moved     state that this change of the key moves
    gain            the share of the tasks' time that the split saves, against the key whole
    """

    key_hash: int
    before: Split
    after: Split
    copied_share: float = 0.0
    copied_bytes: float = 0.0
    bytes_moved: float = 0.0
    gain: float = 0.0

    @property
    def changes(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, eq=False)
class Plan:
    """What a policy proposes. `met` says whether the plan keeps every limit; if not, `reasons` say why, in
    words.

    `imbalance_before` and `imbalance_after` are max / mean - 1, the second as predicted from the same
    snapshot; `seconds` is the time that planning took. A plan that changes nothing carries the table it was
    given. `splits` are all keys that are split before it or after it; they are none of the moves.
    """

    table: Table
    moves: Moves
    imbalance_before: float
    imbalance_after: float
    seconds: float
    met: bool
    reasons: tuple[str, ...] = field(default=())
    splits: tuple[PlannedSplit, ...] = ()

    @property
    def bytes_moved(self) -> float:
        return float(self.moves.state_bytes.sum()) + sum(split.bytes_moved for split in self.splits)

    @property
    def split_changes(self) -> tuple[PlannedSplit, ...]:
        """The keys whose width, side or targets change."""
        return tuple(split for split in self.splits if split.changes)

    @property
    def giving_partitions(self) -> tuple[int, ...]:
        """The partitions that give anything away: each of them must be scanned once when the state
        migrates."""
        of_splits = [split.before.targets for split in self.split_changes]
        giving = np.concatenate([self.moves.sources, *of_splits]) if of_splits else self.moves.sources
        return tuple(int(partition) for partition in np.unique(giving))

    @property
    def changes(self) -> bool:
        """Whether publishing the plan would change where any key goes."""
        return len(self.moves) > 0 or bool(self.split_changes)
