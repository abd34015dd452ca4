"""Partitions run where they were wished for, on real executors; a wish for one that dies costs nothing.

Exactness over all operators is in `PlacementSuite`; here is what needs executors that can be told apart.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import skewless
from integration import state_run
from integration.state_run import BATCHES, N, Run, counts, eventually
from integration.test_faults import executor_processes
from skewless.errors import QueryError, SettingError

CONF = state_run.CONF | {"spark.locality.wait": "30s"}  # a task that runs elsewhere did not follow the wish


def ran_on(balancer: skewless.Balancer, run: Run, batch: int) -> list[str | None]:
    """The executor of each partition's task in a batch, as Spark's listener told it."""

    def known() -> list[skewless.BatchLoads]:
        loads = [load for load in balancer.loads(run.query) if load.batch == batch]
        return [load for load in loads if None not in load.executors]

    eventually(known)
    return list(known()[-1].executors)


def alive(spark: SparkSession) -> list[str]:
    backend = spark.sparkContext._jsc.sc().schedulerBackend()
    ids = backend.getExecutorIds()
    return sorted(ids.apply(i) for i in range(ids.size()))


def test_partitions_run_where_they_were_wished_for_and_give_plain_sparks_rows(
    spark: SparkSession,
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
) -> None:
    placed = run(counts).start()
    placed.feed(0, 1)
    first, second = alive(spark)
    for batch, wishes in (
        (2, [first, first, second, second]),
        (3, [second, second, first, first]),
        (4, [second] * N),
    ):
        balancer.place(placed.query, dict(enumerate(wishes)))
        placed.feed(batch)
        assert ran_on(balancer, placed, batch) == wishes
    balancer.place(placed.query, {})
    placed.feed(5)
    assert balancer.placed(placed.query) == {}
    assert ran_on(balancer, placed, 5) == [second] * N  # plain Spark goes where the state is loaded
    assert placed.rows == plain(counts).rows


def test_a_wish_that_cannot_be_meant_is_refused(
    spark: SparkSession, balancer: skewless.Balancer, run: Callable[..., Run]
) -> None:
    placed = run(counts).start()
    placed.feed(0)
    for wishes in ({0: "99"}, {N: alive(spark)[0]}, {-1: alive(spark)[0]}, {"0": "1"}, {0: 1}, [1]):
        with pytest.raises(SettingError):
            balancer.place(placed.query, wishes)  # type: ignore[arg-type]
    assert balancer.placed(placed.query) == {}
    with pytest.raises(QueryError):
        balancer.place("query", {})  # type: ignore[arg-type]


def test_an_executor_killed_right_after_it_was_named_costs_no_row_and_fails_no_batch(
    spark: SparkSession,
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
) -> None:
    placed = run(counts).start()
    placed.feed(0, 1)
    before = alive(spark)
    victim = before[0]
    balancer.place(placed.query, dict.fromkeys(range(N), victim))
    placed.feed(2)
    assert ran_on(balancer, placed, 2) == [victim] * N
    process = next(
        p for p in executor_processes() if f"--executor-id {victim} " in " ".join(p.cmdline()) + " "
    )
    os.kill(process.pid, signal.SIGKILL)
    placed.feed(3)
    assert victim not in alive(spark)
    assert victim not in ran_on(balancer, placed, 3)
    assert balancer.placed(placed.query) == dict.fromkeys(range(N), victim)  # the wish stands, and is dropped
    placed.feed(*range(4, BATCHES))
    assert placed.query.exception() is None
    assert placed.rows == plain(counts).rows
