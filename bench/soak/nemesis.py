"""Plays one round: starts drivers, kills them or their executors when enough batches are through, and starts
the next, until one comes to the end.

Separate from the player because whoever kills must live on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil
from bench.soak.story import Story

PATIENCE_SECONDS = 900  # for one driver; the machine may be busy
POLL_SECONDS = 0.2
EXECUTOR = "CoarseGrainedExecutorBackend"


class RoundError(Exception):
    """A driver that nobody has killed did not come to its end."""


@dataclass
class Nemesis:
    """One round in `folder`; `done` counts what was done to it."""

    folder: Path
    story: Story
    environment: dict[str, str]
    done: dict[str, int] = field(default_factory=lambda: {"drivers": 0, "kills": 0, "executor kills": 0})

    def run(self) -> None:
        random = Random(f"{self.story.seed} nemesis")
        for number, query in enumerate(self.story.queries):
            query.write_input(self.folder / f"query-{number}")
        total = sum(len(query.rows()) for query in self.story.queries)
        deaths = sorted(random.randrange(total) for _ in range(random.choice([0, 1, 1, 2, 3])))
        for attempt, dies_at in enumerate([*deaths, None]):
            if self._drive(attempt, dies_at, random):
                return
        raise RoundError("the last driver was not to be killed, and did not end")

    def _drive(self, attempt: int, dies_at: int | None, random: Random) -> bool:
        """True if the driver came to its end; false if it was killed."""
        self.done["drivers"] += 1
        log = self.folder / f"driver-{attempt}.log"
        command = [
            sys.executable,
            "-m",
            "bench.soak.play",
            str(self.folder),
            str(self.story.seed),
            str(attempt),
        ]
        with log.open("wb") as output:
            driver = subprocess.Popen(
                command, stdout=output, stderr=output, env=self.environment, start_new_session=True
            )
        try:
            return self._watch(driver, dies_at, random, log)
        finally:
            _kill(driver)

    def _watch(self, driver: subprocess.Popen[bytes], dies_at: int | None, random: Random, log: Path) -> bool:
        until = time.monotonic() + PATIENCE_SECONDS
        executor_dies_at = self._batches() + random.randrange(1, 12) if self.story.cluster else None
        while driver.poll() is None:
            if time.monotonic() > until:
                raise RoundError(f"a driver did not end within {PATIENCE_SECONDS} s; see {log}")
            if dies_at is not None and self._batches() > dies_at:
                time.sleep(random.random() * 1.5)
                if driver.poll() is None:
                    _kill(driver)
                    self.done["kills"] += 1
                    return False
            if executor_dies_at is not None and self._batches() > executor_dies_at:
                executor_dies_at = None
                self.done["executor kills"] += _kill_executor(driver.pid, random)
            time.sleep(POLL_SECONDS)
        if driver.returncode != 0:
            raise RoundError(f"exit code {driver.returncode}; see {log}\n{_tail(log)}")
        return True

    def _batches(self) -> int:
        return sum(1 for _ in self.folder.glob("query-*/out/*.json"))


def _kill(driver: subprocess.Popen[bytes]) -> None:
    """The whole group at once, as when the machine goes: Python, its JVM, executors. Workers of Python have a
    group of their own."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(driver.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    driver.wait()
    psutil.wait_procs(family, timeout=20)


def _kill_executor(driver: int, random: Random) -> int:
    executors = []
    for process in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(EXECUTOR in word for word in process.cmdline()):
                executors.append(process)
    if not executors:
        return 0
    random.choice(executors).kill()
    return 1


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])
