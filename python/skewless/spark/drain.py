"""Empties one executor by hand, for people who patch machines, and ends it if they say so.

Separate from the balancer because it takes many batches: it waits for what the placer does, and does the
placer's steps itself where no loop runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from skewless.control.loop import Loop
from skewless.control.scaler import END_WAIT_SECONDS
from skewless.errors import NotYetError, SettingError
from skewless.spark.gateway import Gateway

TIMEOUT_SECONDS = 600.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Drained:
    """An executor that holds no partition. `ended`: it was decommissioned, at a moment without a job."""

    executor: str
    seconds: float
    ended: bool = False

    def __str__(self) -> str:
        """
        >>> print(Drained("2", 4.2))
        executor 2 holds no partition any more, after 4.2 s: it may be ended. undrain("2") lets it take some
        """
        state = f"executor {self.executor} holds no partition any more, after {self.seconds:.1f} s"
        if not self.ended:
            return f'{state}: it may be ended. undrain("{self.executor}") lets it take some'
        return f"{state}, and was ended between batches"


def drain(
    gateway: Gateway, loop: Loop, executor: Any, decommission: bool, timeout_seconds: float | None
) -> Drained:
    """What `Balancer.drain` says."""
    _check(gateway, loop, executor, decommission)
    started = time.monotonic()
    loop.placer.leave(executor)
    while True:
        if not loop.running:
            loop.place()
        holders = _holders(gateway, loop, executor)
        if not holders:
            break
        if timeout_seconds is not None and time.monotonic() - started > timeout_seconds:
            raise NotYetError(
                f"executor '{executor}' still holds partitions of {', '.join(holders)} after "
                f"{timeout_seconds:g} s ({loop.placer.record.why}). A partition moves with a batch, so a "
                "query needs input. It is being emptied further: call drain again to wait, or undrain."
            )
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - started
    if not decommission:
        return Drained(executor, seconds)
    if not gateway.end_executor(executor, END_WAIT_SECONDS):
        raise NotYetError(
            f"executor '{executor}' holds no partition any more and was not ended: jobs ran for "
            f"{END_WAIT_SECONDS:g} s without a pause, and they may use it. It takes no partitions; call "
            "drain again to wait, or undrain."
        )
    loop.placer.stay(executor)
    return Drained(executor, seconds, True)


def _holders(gateway: Gateway, loop: Loop, executor: str) -> list[str]:
    """The queries that have a partition there: of all their stages, in the last batch that is committed."""
    if executor not in gateway.executors():
        return []
    holders = set(loop.placer.holding(executor))
    for query in gateway.active():
        newest = gateway.newest(str(query.id))
        stages = [load for load in gateway.loads(str(query.id)) if load[0] == newest]
        title, refused = str(query.name or query.id), loop.placer.refused(str(query.id))
        if not refused and any(executor in load[5] for load in stages):
            holders.add(title)
    return sorted(holders)


def _check(gateway: Gateway, loop: Loop, executor: Any, decommission: bool) -> None:
    if loop.stopped:
        raise SettingError(
            "this balancer was stopped, and plans nothing any more. Drain with a new one: "
            "skewless.balance(spark, policy=None).drain(...)."
        )
    alive = gateway.executors()
    if not isinstance(executor, str) or executor not in alive:
        raise SettingError(
            f"executor {executor!r} is not alive. Name one of these, in quotes: {', '.join(sorted(alive))}."
        )
    if not set(alive) - loop.placer.leaving - {executor}:
        raise SettingError(
            f"executor '{executor}' is the last one that may hold partitions. Add another, or undrain one."
        )
    obstacle = gateway.fixed_executors() if decommission else None
    if obstacle is not None:
        raise SettingError(
            f"executor '{executor}' cannot be decommissioned: {obstacle}, or drain without decommission."
        )
