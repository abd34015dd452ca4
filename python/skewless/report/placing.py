"""Who holds what: the executors with their partitions, planned and real, in words and as a picture.

Separate from the records of queries because executors are shared by all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from skewless.report import svg
from skewless.wording import counted

KEPT_PLACED = 400  # batches of all queries together


@dataclass(frozen=True)
class ExecutorRecord:
    """One executor. `held` and `planned` count partitions; `load` is the share of its time that their tasks
    take; `state` is "leaving", "warming up" or empty."""

    executor: str
    slots: int
    held: int
    planned: int
    load: float
    state: str = ""

    def __str__(self) -> str:
        """
        >>> print(ExecutorRecord("0", 1, 3, 2, 0.51, "leaving"))
        executor 0: 3 partitions (planned 2), 51% busy with them, 1 slot, leaving
        """
        planned = "" if self.held == self.planned else f" (planned {self.planned})"
        state = f", {self.state}" if self.state else ""
        return (
            f"executor {self.executor}: {counted(self.held, 'partition')}{planned}, "
            f"{self.load:.0%} busy with them, {counted(self.slots, 'slot')}{state}"
        )


@dataclass(frozen=True)
class PlacedBatch:
    """Which executor ran each partition of a query in one batch; empty: nobody knows. `strays` ran elsewhere
    than was wished for; `distance` is the load distance of all executors, as a share of the mean."""

    query_id: str
    batch: int
    executors: tuple[str, ...]
    strays: tuple[int, ...]
    distance: float
    remote_share: float = 0.0  # of the bytes that the tasks read of shuffles


@dataclass(frozen=True)
class PlacingRecord:
    """All that is known about placement and scaling, as a value."""

    policy: str
    why: str
    executors: tuple[ExecutorRecord, ...] = ()
    batches: tuple[PlacedBatch, ...] = ()
    plans: int = 0
    moves: int = 0
    planned_distance: float | None = None  # of the last plan
    scaling: str = ""
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def distance(self) -> float | None:
        return self.batches[-1].distance if self.batches else None

    @property
    def lines(self) -> list[str]:
        """
        >>> print("\\n".join(PlacingRecord("greedy", "level").lines))
        placement by greedy: 0 plans, 0 partitions moved
          now: level
        """
        found = [
            f"placement by {self.policy}: {counted(self.plans, 'plan')}, "
            f"{counted(self.moves, 'partition')} moved"
        ]
        found += [f"  {one}" for one in self.executors]
        if self.distance is not None:
            foreseen = "" if self.planned_distance is None else f", {self.planned_distance:.0%} planned"
            found.append(f"  load distance: {self.distance:.0%} of the mean now{foreseen}")
        found.append(f"  now: {self.why}")
        found += [f"  scaling: {self.scaling}"] if self.scaling else []
        return found + [f"  error, {counted(count, 'time')}: {words}" for words, count in self.errors.items()]


def picture(record: PlacingRecord, query_id: str, title: str) -> str:
    """Partitions on executors over the batches of one query, and the load distance below."""
    batches = [batch for batch in record.batches if batch.query_id == query_id]
    if not batches:
        return ""
    frame = svg.Frame(batches[0].batch, batches[-1].batch)
    names = _names(batch.executors for batch in batches)
    places = [(b.batch, tuple(names.index(e) if e else -1 for e in b.executors)) for b in batches]
    dots = [(b.batch, p) for b in batches for p in b.strays]
    distance = [(b.batch, 100 * b.distance) for b in batches]
    note = (
        f"Which executor ran each partition of {title}, batch by batch. A circle: it ran elsewhere than was "
        "wished for."
    )
    return (
        f'<h3>Executors</h3><p class="note">{escape(note)}</p>'
        + svg.legend([f"executor {name}" for name in names])
        + svg.places(frame, places, dots)
        + '<p class="note">Load distance: how far the farthest executor is from the mean load.</p>'
        + svg.curves(frame, {"load distance": distance}, "% of the mean", height=90)
    )


def _names(found: Iterable[tuple[str, ...]]) -> list[str]:
    every = {executor for executors in found for executor in executors if executor}
    return sorted(every, key=lambda name: (len(name), name))
