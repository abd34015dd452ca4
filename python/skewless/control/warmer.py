"""Executors that have just come load what stateful tasks need before they are given partitions.

Separate from the placer because it takes seconds, on a thread of its own. Cold, an executor's first task was
seen to take ten times as long as its neighbours', and the whole batch with it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Protocol

from skewless.control.troubles import Troubles
from skewless.control.worker import Worker


class WarmingGateway(Protocol):
    """What warming asks of the JVM."""

    def warm_executor(self, executor: str, /) -> None: ...


class Warmer:
    """`see` from one thread, again and again. Those of the first look have run long enough."""

    def __init__(self, gateway: WarmingGateway, troubles: Troubles) -> None:
        self._gateway, self._troubles = gateway, troubles
        self._known: set[str] | None = None
        self._worker = Worker("skewless warming")
        self.cold: frozenset[str] = frozenset()  # replaced, never changed: two threads look at it

    def see(self, executors: Collection[str]) -> None:
        """The executors that are alive now."""
        if self._known is not None:
            self.cold |= set(executors) - self._known
        self._known = set(executors)
        self.cold &= self._known
        if self.cold and self._worker.busy_since is None:
            self._worker.run(partial(self._warm, min(self.cold)), patience=0)

    def _warm(self, executor: str) -> None:
        try:
            self._gateway.warm_executor(executor)
        except Exception as error:
            self._troubles.note(error)
        finally:
            self.cold -= {executor}

    def end(self) -> None:
        self._worker.end()
