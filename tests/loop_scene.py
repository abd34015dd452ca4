"""A loop without a thread and without Spark, for the tests of the loop."""

from __future__ import annotations

from fake_gateway import Clock, FakeGateway, FakeQuery
from skewless.control.loop import Loop
from skewless.control.pace import Pace
from skewless.control.settings import Settings
from skewless.report.records import QueryRecord

EAGER = Settings(pace=Pace(patience=1, cooldown_seconds=0))


class Scene:
    """A loop over fake queries, stepped by hand: a batch, then a look."""

    def __init__(self, *queries: FakeQuery, settings: Settings = EAGER) -> None:
        self.query = queries[0] if queries else FakeQuery()
        self.gateway = FakeGateway(*(queries or (self.query,)))
        self.clock = Clock()
        self.loop = Loop(self.gateway, settings, self.clock)
        assert self.loop.step()

    def see(self, rows: dict[int, int], times: int = 1) -> QueryRecord:
        for _ in range(times):
            self.query.run(rows)
            self.clock.now += 1
            assert self.loop.step()
        return self.record()

    def record(self, at: int = 0) -> QueryRecord:
        return self.loop.status().queries[at]

    @property
    def epochs(self) -> list[int]:
        return [batch.epoch for batch in self.record().batches]
