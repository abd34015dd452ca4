"""The shares of the hottest keys, window by window: what every forecast is made from.

Separate from the forecasters because it remembers and they need not. A window is a micro-batch that had rows.
So neither a clock that jumps nor an idle night changes a history; a trigger with an interval makes windows
even.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from skewless.errors import SettingError
from skewless.model.snapshot import Floats
from skewless.model.table import Int32s

KEPT_WINDOWS = 288  # a day of windows of five minutes
KEPT_KEYS = 1000
_FADE = 0.9  # of a key's heat, per window


@dataclass(frozen=True, eq=False)
class History:
    """`shares[w, k]` is the share of the rows of window w, oldest first, that key k had. Build it with `of`,
    unless a `Memory` makes it."""

    key_hashes: Int32s
    shares: Floats

    @classmethod
    def of(cls, key_hashes: ArrayLike, shares: ArrayLike) -> History:
        """A history of these shares.

        >>> History.of([4], [[0.5], [float("nan")]])
        Traceback (most recent call last):
        skewless.errors.SettingError: shares hold nan. Give numbers from 0 to 1, one per window and key.
        """
        hashes = np.asarray(key_hashes, dtype=np.int32)
        array = np.array(shares, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != len(hashes):
            raise SettingError(
                f"shares have shape {array.shape} for {len(hashes)} keys. Give one row per window, with one "
                "share per key."
            )
        bad = array[~(np.isfinite(array) & (array >= 0) & (array <= 1))]
        if len(bad):
            raise SettingError(f"shares hold {bad[0]}. Give numbers from 0 to 1, one per window and key.")
        if len(np.unique(hashes)) < len(hashes):
            raise SettingError("a key hash comes twice. Add its shares up.")
        return cls(hashes, array)

    @property
    def windows(self) -> int:
        return len(self.shares)

    @property
    def whole(self) -> Floats:
        """The shares with one more place, that of all other keys: each window adds up to one."""
        rest = np.maximum(0.0, 1.0 - self.shares.sum(axis=1, keepdims=True))
        return np.concatenate([self.shares, rest], axis=1)


class Memory:
    """Keeps the last windows of the hottest keys. A key that is new takes the place of the coldest, if it is
    hotter; its past counts as zero.

    >>> memory = Memory(keys=2)
    >>> memory.add([4, 7], [0.5, 0.1])
    >>> memory.add([7, 9], [0.2, 0.3])
    >>> memory.history.key_hashes, memory.history.shares
    (array([4, 9], dtype=int32), array([[0.5, 0. ],
           [0. , 0.3]]))
    """

    def __init__(self, keys: int = KEPT_KEYS, windows: int = KEPT_WINDOWS) -> None:
        self._most_keys, self._most_windows = keys, windows
        self._hashes = np.zeros(0, dtype=np.int32)
        self._shares = np.zeros((0, 0))
        self._heat = np.zeros(0)

    @property
    def history(self) -> History:
        return History(self._hashes, self._shares)

    def add(self, key_hashes: ArrayLike, shares: ArrayLike) -> None:
        """One window. Nothing is kept of a window without any share; what is no share at all counts as
        none."""
        hashes = np.asarray(key_hashes, dtype=np.int32)
        now = np.nan_to_num(np.asarray(shares, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        if hashes.shape != now.shape or hashes.ndim != 1:
            raise SettingError(
                f"{hashes.shape} key hashes and {now.shape} shares. Give one share per key hash."
            )
        hashes, first = np.unique(hashes, return_index=True)
        now = np.clip(now[first], 0.0, 1.0)
        if not now.any():
            return
        now /= max(1.0, now.sum())
        self._make_room(hashes, now)
        row = np.zeros(len(self._hashes))
        _, at, where = np.intersect1d(self._hashes, hashes, assume_unique=True, return_indices=True)
        row[at] = now[where]
        self._heat = _FADE * self._heat + (1 - _FADE) * row
        self._shares = np.concatenate([self._shares[-(self._most_windows - 1) :], row[None, :]])

    def _make_room(self, hashes: Int32s, now: Floats) -> None:
        """Columns for keys that are new: the hottest of old and new keys stay."""
        known = np.zeros(len(self._hashes))
        _, at, where = np.intersect1d(self._hashes, hashes, assume_unique=True, return_indices=True)
        known[at] = now[where]
        fresh = ~np.isin(hashes, self._hashes, assume_unique=True)
        if len(self._hashes) == self._most_keys:
            fresh &= (1 - _FADE) * now > (_FADE * self._heat + (1 - _FADE) * known).min()
        if not fresh.any():
            return
        all_hashes = np.concatenate([self._hashes, hashes[fresh]])
        heat = np.concatenate([self._heat, np.zeros(int(fresh.sum()))])
        fill = np.zeros((len(self._shares), int(fresh.sum())))
        shares = np.concatenate([self._shares.reshape(len(self._shares), len(self._hashes)), fill], axis=1)
        soon = _FADE * heat + (1 - _FADE) * np.concatenate([known, now[fresh]])
        kept = np.sort(np.argsort(-soon, kind="stable")[: self._most_keys])
        self._hashes, self._heat, self._shares = all_hashes[kept], heat[kept], shares[:, kept]
