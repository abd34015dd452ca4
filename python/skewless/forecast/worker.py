"""Has networks trained in a process of their own, within a budget: the loop asks, goes on, and looks later.

Separate from the training, which runs in that process. The process is started per training and ends with it,
so that nothing of jax is ever in the driver's own process: not its memory, not its threads, not its crashes.

The budget is a share of one core's time. It is earned while time passes and spent in CPU seconds, those for
starting Python and compiling included. A training begins when there is enough for one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np

from skewless.errors import ForecastError
from skewless.forecast import training
from skewless.forecast.history import History
from skewless.forecast.weights import Arrays, checked, pack, unpack

BUDGET = 0.02  # of one core
FIRST_SECONDS = 8.0  # what a training is thought to cost before one was seen
MOST_SECONDS = 20.0
SAVED_SECONDS = 60.0  # CPU seconds that can be saved up
WALL_SECONDS = 1200.0  # after which a training that has not ended is given up


class Trainer(ABC):
    """Trains somewhere; `ask` and `collect` return at once."""

    @abstractmethod
    def ask(self, history: History, seed: int) -> bool:
        """Begins a training on this history; false if one is under way or cannot be paid."""

    @abstractmethod
    def collect(self) -> Arrays | None:
        """The weights of the training that has ended, once; None if there is none. Raises if it failed."""

    def close(self) -> None:  # noqa: B027
        """No training is needed any more."""


class Worker(Trainer):
    """Trains in a child process. `clock` gives seconds."""

    def __init__(self, budget: float = BUDGET, clock: Callable[[], float] = time.monotonic) -> None:
        training.check_installed()
        self._budget, self._clock = budget, clock
        self._earned, self._looked = 0.0, clock()
        self._expected = FIRST_SECONDS
        self._began = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def cpu_seconds(self) -> float:
        """What may be spent now. A clock that jumps earns nothing, and what is saved up has an end."""
        now = self._clock()
        self._earned = min(SAVED_SECONDS, self._earned + self._budget * max(0.0, now - self._looked))
        self._looked = now
        return self._earned

    def ask(self, history: History, seed: int) -> bool:
        allowed = self.cpu_seconds
        if self._child is not None or allowed < self._expected:
            return False
        task = _task(history, seed, min(allowed, MOST_SECONDS))
        self._folder = tempfile.TemporaryDirectory(prefix="skewless-forecast-")
        (Path(self._folder.name) / training.TASK).write_bytes(pack(task))
        self._child, self._began = self._start(self._folder.name), self._clock()
        return True

    def collect(self) -> Arrays | None:
        if self._child is None:
            return None
        if self._child.poll() is None:
            if self._clock() - self._began < WALL_SECONDS:
                return None
            self.close()
            self._pay(MOST_SECONDS)
            raise ForecastError(f"a training has not ended within {WALL_SECONDS:.0f} s and was given up.")
        try:
            return self._result(self._child)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the child, if there is one, and removes its folder."""
        if self._child is not None:
            if self._child.poll() is None:
                self._child.kill()
            self._child.communicate()
        if self._folder is not None:
            self._folder.cleanup()
        self._child = self._folder = None

    def _start(self, folder: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with open(Path(folder) / "errors", "wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "skewless.forecast.training", folder],
                env={**os.environ, **training.ONE_THREAD, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def _result(self, child: subprocess.Popen[bytes]) -> Arrays:
        assert self._folder is not None
        folder = Path(self._folder.name)
        if child.returncode != 0:
            self._pay(self._expected)
            lines = (folder / "errors").read_text(errors="replace").strip().splitlines()[-1:] or ["no words"]
            raise ForecastError(f"a training ended with code {child.returncode}: {lines[0]}")
        found = unpack((folder / training.RESULT).read_bytes())
        self._pay(float(found["cpu_seconds"][0]))
        return checked(found)

    def _pay(self, cpu_seconds: float) -> None:
        self._earned = max(0.0, self.cpu_seconds - cpu_seconds)
        self._expected = min(SAVED_SECONDS, cpu_seconds)


class Here(Trainer):
    """Trains at once and in this process: for evidence and advice, where nobody waits for a batch."""

    def __init__(self, cpu_seconds: float = MOST_SECONDS) -> None:
        training.check_installed()
        os.environ.update({name: os.environ.get(name, value) for name, value in training.ONE_THREAD.items()})
        self._cpu_seconds = cpu_seconds
        self._found: Arrays | None = None

    def ask(self, history: History, seed: int) -> bool:
        self._found = checked(training.run(_task(history, seed, self._cpu_seconds)))
        return True

    def collect(self) -> Arrays | None:
        found, self._found = self._found, None
        return found


def _task(history: History, seed: int, cpu_seconds: float) -> Arrays:
    settings = np.array([float(seed), cpu_seconds])
    return {"windows": history.whole, "key_hashes": history.key_hashes, "settings": settings}
