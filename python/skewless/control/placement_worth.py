"""What a placement saves per batch, in seconds, against what the state that it moves takes to load.

Separate from the placer because load distance is what policies level, and time is what a user gains: with a
free slot for each partition any placement is as fast as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from skewless.control.holdings import NOBODY, SECONDS_PER_MOVE, Holdings
from skewless.control.placement_pace import PlacementPace
from skewless.control.slots import Slots
from skewless.model.placement import Placement

Places = list[tuple[str, ...]]  # who holds each partition, query by query


class Worth:
    """Judges targets of a placement of these queries' partitions."""

    def __init__(self, placement: Placement, holdings: list[Holdings], pace: PlacementPace) -> None:
        self._placement, self._holdings, self._pace = placement, holdings, pace
        nodes = placement.nodes
        self._executors = dict(zip(nodes.names, map(int, nodes.capacities), strict=True))
        self._now = self.places(placement.sources)
        self._usual = self._finish(self._now)

    def places(self, targets: Any) -> Places:
        """The targets in executors' names."""
        names = self._placement.nodes.names
        every = [names[t] if t >= 0 else NOBODY for t in np.asarray(targets).tolist()]
        ends = np.cumsum([0, *(len(h.holders) for h in self._holdings)]).tolist()
        return [tuple(every[a:b]) for a, b in pairwise(ends)]

    def of(self, targets: Any, whole: Callable[[], Any] | None = None) -> tuple[str, float]:
        """Why the targets are not worth it, empty if they are, and the seconds per batch that they save.
        `whole` gives the targets of the same plan without a budget: what saves nothing by itself may be a
        step towards that."""
        then = self.places(targets)
        for h, before, after in zip(self._holdings, self._now, then, strict=True):
            if h.strays(self._executors, after) > h.strays(self._executors, before):
                return f"no plan: in {h.title} a queue would be longer than spark.locality.wait", 0.0
        saved, taken = self._usual - self._finish(then), self._load_seconds(then)
        if saved <= 0 and whole is not None and self._is_nearer(targets):
            places = self.places(whole())
            saved, taken = self._usual - self._finish(places), self._load_seconds(places)
        if saved <= self._pace.min_gain * self._usual:
            return f"no plan: it would save {max(0.0, saved):.2f} s per batch", 0.0
        if saved * self._pace.horizon_batches <= taken:
            return (
                f"no plan: {saved:.2f} s saved per batch, over {self._pace.horizon_batches} batches, is less "
                f"than {taken:.1f} s of loading"
            ), 0.0
        return "", saved

    def _is_nearer(self, targets: Any) -> bool:
        distance = self._placement.distance
        return distance(np.asarray(targets)) < distance(self._placement.sources)

    def _finish(self, places: Places) -> float:
        """Seconds that tasks take: half as if the queries' batches never overlapped, half as if they always
        did."""
        executors, holdings = self._executors, self._holdings
        apart = sum(h.finish(executors, after) for h, after in zip(holdings, places, strict=True))
        if len(holdings) == 1:
            return apart
        at = {executor: i for i, executor in enumerate(executors)}
        homes = tuple(at.get(e, -1) for after in places for e in after)
        slots = Slots(tuple(executors.values()), homes, max(h.wait for h in holdings))
        return (apart + slots.finish(np.concatenate([h.seconds for h in holdings]))) / 2

    def _load_seconds(self, places: Places) -> float:
        seconds = 0.0
        for h, after in zip(self._holdings, places, strict=True):
            moved = [p for p, (a, b) in enumerate(zip(h.places, after, strict=True)) if a != b]
            seconds += h.load_seconds(moved) if moved else 0.0
        return max(seconds, SECONDS_PER_MOVE)
