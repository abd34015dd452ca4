"""A thread that does one thing at a time for somebody who waits only so long.

Separate from the loop because the loop must look at all queries, and what it asks of one, a user's policy
above all, may take for ever.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable


class Worker:
    """`run` is called by one thread, and only while the worker is idle.

    >>> worker = Worker("doctest")
    >>> worker.run(lambda: None, patience=10), worker.busy_since
    (True, None)
    >>> gate = threading.Event()
    >>> worker.run(gate.wait, patience=0.01), worker.busy_since is None
    (False, False)
    >>> gate.set()
    >>> worker.end()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self.busy_since: float | None = None  # in seconds of the epoch

    def run(self, call: Callable[[], object], patience: float) -> bool:
        """Whether the call has ended within so many seconds; else it goes on. What it raises is lost."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._done.clear()
        self.busy_since = time.time()
        self._calls.put(call)
        return self._done.wait(patience)

    def end(self) -> None:
        """After what it does now."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            finally:
                self.busy_since = None
                self._done.set()
