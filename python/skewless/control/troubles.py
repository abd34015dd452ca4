"""What goes wrong beside a user's query: counted, logged once, and tried again at growing intervals.

Separate from the loop because each query and the loop itself have troubles of their own, and none may end the
loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

log = logging.getLogger("skewless")

MOST_SECONDS = 60.0
KEPT_KINDS = 20
KEPT_CHARACTERS = 500


class Troubles:
    """Errors by their words, with counts. Only so many kinds are told apart: some messages never come twice.

    >>> troubles = Troubles("query clicks")
    >>> for _ in range(3):
    ...     troubles.note(ValueError("odd"))
    >>> troubles.counts
    {'ValueError: odd': 3}
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._counts: Counter[str] = Counter()

    def note(self, error: BaseException) -> None:
        words = self._kind(words_of(error))
        self._counts[words] += 1
        if self._counts[words] == 1:
            log.warning("%s: nothing was changed: %s", self._where, words)

    def absorb(self, counts: dict[str, int]) -> None:
        """Takes over what was counted, and logged, elsewhere."""
        for words, count in counts.items():
            self._counts[self._kind(words)] += count

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def _kind(self, words: str) -> str:
        known = words in self._counts or len(self._counts) < KEPT_KINDS
        return words if known else f"more errors than the {KEPT_KINDS} kinds told apart here"


class Backoff:
    """Says when to try again: after 2, 4, 8, ... and at most 60 seconds.

    >>> now = 0.0
    >>> backoff = Backoff(lambda: now)
    >>> backoff.failed()
    >>> backoff.failed()
    >>> backoff.seconds_left
    4.0
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.succeeded()

    def failed(self) -> None:
        self._failures += 1
        self._until = self._clock() + min(MOST_SECONDS, 2.0 ** min(self._failures, 30))

    def succeeded(self) -> None:
        self._failures, self._until = 0, float("-inf")

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._until - self._clock())


def words_of(error: BaseException) -> str:
    """An error in one line of bounded length; the stack that Java appends says nothing to a person."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {' '.join(line.strip() for line in lines[:2])}"[:KEPT_CHARACTERS]
