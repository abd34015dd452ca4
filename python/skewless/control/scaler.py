"""Adds executors and ends them: what becomes of the answers of Algorithm 1 over many batches.

Separate from `scaling.py`, which is the question and a pure function, and from the placer, which fills and
empties executors: here is what takes time and can fail. One change at a time. An executor is ended only when
it holds nothing, between batches; one that never comes is waited for only so long.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from skewless.control.placer import Placer
from skewless.control.scaling import Scale, adapt
from skewless.control.troubles import words_of
from skewless.control.worker import Worker
from skewless.model.placement import Placement, PlacementLimits
from skewless.policies.groups import PlacementPolicy
from skewless.wording import counted

log = logging.getLogger("skewless")

BUSY_SAMPLES = 6
END_WAIT_SECONDS = 30.0  # for a moment without any job; several queries may leave none


class ScalerGateway(Protocol):
    """What scaling asks of the JVM."""

    def executors(self) -> dict[str, int]: ...
    def request_executors(self, total: int, /) -> bool: ...
    def end_executor(self, executor: str, wait_seconds: float, /) -> bool: ...


class Scaler:
    """`step` after each step of the placer, on the same thread."""

    def __init__(
        self,
        gateway: ScalerGateway,
        placer: Placer,
        policy: PlacementPolicy,
        scale: Scale,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway, self._placer, self._policy, self._scale = gateway, placer, policy, scale
        self._clock = clock
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=BUSY_SAMPLES)
        self._asked = ""  # for what, and in how many batches in a row
        self._times = 0
        self._rest_until = float("-inf")
        self._waiting: tuple[int, float] | None = None  # for how many executors, until when
        self._ours: frozenset[str] = frozenset()  # leaving because the scaler said so
        self._empty: dict[str, int] = {}  # executor -> batches in a row without a partition
        self._worker = Worker("skewless executors")  # ending takes seconds
        self._why = "no batch seen yet"

    def step(self, news: bool) -> None:
        executors = self._gateway.executors()
        self._arrivals(executors)
        self._ours &= self._placer.leaving
        if self._worker.busy_since is None:
            self._end_empty(news)
            if news:
                self._consider(executors)
        self._placer.scaling = f"{self._scale.min} to {self._scale.max} executors, {self._why}"

    def stop(self) -> None:
        """What is being emptied stays, and holds what it still has."""
        for executor in self._ours:
            self._placer.stay(executor)
        if self._ours or self._waiting is not None:
            self._placer.scaling = "stopped in the middle of a change: executors are left as they are"
        self._worker.end()

    # -- executors that come ---------------------------------------------------------------------------------

    def _arrivals(self, executors: dict[str, int]) -> None:
        if self._waiting is None:
            return
        wanted, until = self._waiting
        if len(executors) >= wanted:
            self._waiting = None
            self._rest(f"{counted(wanted, 'executor')} now")
        elif self._clock() > until:
            self._waiting = None
            self._request(len(executors))  # what never came is not asked for any more
            self._rest(
                f"asked for {counted(wanted, 'executor')}; in {self._scale.wait_seconds:g} s there were "
                f"{len(executors)}: the cluster has no room. Goes on with those"
            )
            log.warning("scaling: %s", self._why)

    # -- executors that go -----------------------------------------------------------------------------------

    def _end_empty(self, news: bool) -> None:
        for executor in sorted(self._ours):
            empty = not self._placer.holding(executor)
            self._empty[executor] = self._empty.get(executor, 0) + news if empty else 0
            if self._empty[executor] >= 2:
                self._why = f"ending executor {executor}, which holds nothing any more"
                self._worker.run(partial(self._end, executor), patience=0)
                return

    def _end(self, executor: str) -> None:
        try:
            if not self._gateway.end_executor(executor, END_WAIT_SECONDS):
                self._why = f"executor {executor} holds nothing; it ends at a moment without a job"
                return  # asked again with the next batch
            self._rest(f"ended executor {executor}")
        except Exception as error:
            self._placer.troubles.note(error)
            self._placer.stay(executor)
            self._rest(f"executor {executor} was not ended: {words_of(error)}")
        self._ours -= {executor}

    # -- the question ----------------------------------------------------------------------------------------

    def _consider(self, executors: dict[str, int]) -> None:
        self._samples.append((self._clock(), dict(self._placer.busy)))
        if self._waiting is not None or self._ours:
            self._why = self._words_of_change(executors)
            return
        if self._clock() < self._rest_until or self._placer.warming:
            return
        used, placement = self._used(executors), self._placer.placement()
        if used is None or placement is None:
            return
        loads = float(placement.loads.sum()) / 100
        slots = sum(executors.values())
        # what tasks without state take is theirs to share
        whole = self._placer.placement(max(1.0, used * slots / loads)) if loads else placement
        more, leaving = self._answer(whole or placement)
        self._why = f"{used:.0%} of the slots' time is used, {self._scale.target:.0%} is the target"
        if more and len(executors) >= self._scale.min and slots >= len(placement.groups):
            more = 0
            self._why += "; there is a slot for each partition already, more would have nothing to do"
        self._ask(executors, more, leaving)

    def _used(self, executors: dict[str, int]) -> float | None:
        """The share of the slots' time that all tasks took, over the last batches."""
        if len(self._samples) < 2:
            return None
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        common = [e for e in executors if e in before and e in after]
        slots = sum(executors[e] for e in common)
        if not slots or end <= start:
            return None
        took = sum(max(0, after[e] - before[e]) for e in common) / 1000
        return min(1.0, took / (slots * (end - start)))

    def _answer(self, placement: Placement) -> tuple[int, tuple[str, ...]]:
        """How many executors to add, and which are to leave."""
        sizes = placement.nodes.capacities
        if np.any(sizes != 1):  # a node that is added has capacity 1: count in executors of the usual size
            placement = _in_executors(placement, float(np.median(sizes)))
        answer = adapt(placement, PlacementLimits(), self._scale, self._policy)
        return len(answer.added), answer.leaving

    def _ask(self, executors: dict[str, int], more: int, leaving: tuple[str, ...]) -> None:
        asked = "more" if more else "fewer" if leaving else ""
        self._times = self._times + 1 if asked and asked == self._asked else int(bool(asked))
        self._asked = asked
        if not asked:
            return
        if self._times < self._scale.patience:
            self._why += f"; {asked} executors asked for in {self._times} of {self._scale.patience} batches"
        elif more:
            wanted = len(executors) + more
            self._request(wanted)
            self._waiting = wanted, self._clock() + self._scale.wait_seconds
            self._why = self._words_of_change(executors)
        else:
            for executor in leaving:
                self._placer.leave(executor)
            self._ours |= frozenset(leaving)
            self._why = self._words_of_change(executors)

    def _request(self, total: int) -> None:
        try:
            self._gateway.request_executors(total)
        except Exception as error:
            self._placer.troubles.note(error)

    def _words_of_change(self, executors: dict[str, int]) -> str:
        if self._waiting is not None:
            return f"waiting for {counted(self._waiting[0], 'executor')}, {len(executors)} are there"
        return f"emptying executor {', '.join(sorted(self._ours))}, to end it"

    def _rest(self, why: str) -> None:
        self._why, self._times, self._asked = why, 0, ""
        self._rest_until = self._clock() + self._scale.cooldown_seconds
        self._samples.clear()


def _in_executors(placement: Placement, slots: float) -> Placement:
    """The same with capacities and loads counted in executors of so many slots."""
    nodes = replace(placement.nodes, capacities=placement.nodes.capacities / slots)
    groups = replace(placement.groups, loads=placement.groups.loads / slots)
    return Placement(nodes, groups, placement.flows)
