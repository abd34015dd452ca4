"""Partitions run where they were wished for, on real executors; a wish for one that dies costs nothing. The
loop wishes by itself, and empties an executor that is to go.

Exactness over all operators is in `PlacementSuite`; here is what needs executors that can be told apart.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import DataFrame, SparkSession

import skewless
from integration import state_run
from integration.state_run import BATCHES, N, Run, counts, eventually, table, totals
from integration.test_faults import executor_processes
from skewless.errors import QueryError, SettingError

BATCHES_FED = 400  # at most, by a thread that feeds
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


def kill(executor: str) -> None:
    named = f"--executor-id {executor} "
    process = next(p for p in executor_processes() if named in " ".join(p.cmdline()) + " ")
    os.kill(process.pid, signal.SIGKILL)


def enough(spark: SparkSession, count: int) -> None:
    """A standalone master starts another executor for one that was killed."""
    eventually(lambda: len(alive(spark)) >= count)


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
    kill(victim)
    placed.feed(3)
    assert victim not in alive(spark)
    assert victim not in ran_on(balancer, placed, 3)
    assert balancer.placed(placed.query) == dict.fromkeys(range(N), victim)  # the wish stands, and is dropped
    placed.feed(*range(4, BATCHES))
    assert placed.query.exception() is None
    assert placed.rows == plain(counts).rows


# -- the loop ------------------------------------------------------------------------------------------------

EAGER = skewless.PlacementPace(patience=1, cooldown_seconds=0, plan_share=1.0)


def slow(df: DataFrame) -> DataFrame:
    """Each key takes its time, so that where partitions run decides how long a batch takes."""
    return totals(df, pause=lambda key: time.sleep(0.02))


@contextmanager
def failed_tasks(spark: SparkSession) -> Iterator[list[int]]:
    """Tasks that failed meanwhile, by Spark's own count over all stages; filled at the end."""
    found: list[int] = []
    store = spark.sparkContext._jsc.sc().statusStore()

    def count() -> int:
        every = store.executorList(False)
        return sum(every.apply(i).failedTasks() for i in range(every.size()))

    before = count()
    yield found
    found.append(count() - before)


@contextmanager
def fed(run: Run, start: int) -> Iterator[list[int]]:
    """The query has batches all the while."""
    done: list[int] = []
    is_enough = threading.Event()

    def feed() -> None:
        for batch in range(start, BATCHES_FED):
            run.feed(batch)
            done.append(batch)
            if is_enough.is_set():
                return

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    yield done
    is_enough.set()
    thread.join(120)
    assert not thread.is_alive()


def same_rows(placed: Run, plain: Run) -> None:
    """Plain Spark gives the same rows for the same batches."""
    placed.query.stop()
    plain.start(state_run.STOCK).feed(*sorted(placed.rows))
    assert placed.rows == plain.rows


def badly_placed(balancer: skewless.Balancer, placed: Run, executor: str) -> None:
    """Batches 0 to 2, the last with all partitions on one executor."""
    placed.start().feed(0, 1)
    balancer.place(placed.query, dict.fromkeys(range(N), executor))
    placed.feed(2)
    assert ran_on(balancer, placed, 2) == [executor] * N


def test_the_loop_levels_a_bad_placement_then_an_executor_is_drained_and_killed(
    spark: SparkSession, balancer: skewless.Balancer, run: Callable[..., Run], hashes: list[int]
) -> None:
    """A swap is under way while it is drained."""
    enough(spark, 2)
    first, second = alive(spark)[:2]
    placed = run(slow)
    with failed_tasks(spark) as failed:
        badly_placed(balancer, placed, first)
        with skewless.balance(spark, policy=None, placement="greedy", placement_pace=EAGER) as looping:
            batch = 3
            while set(ran_on(looping, placed, batch - 1)) == {first}:
                assert batch < 14, looping.status()
                placed.feed(batch)
                batch += 1
                time.sleep(0.3)  # the loop plans beside the batches
            placing = looping.status().placing
            assert placing is not None
            assert placing.plans >= 1
            assert placing.errors == {}
            with fed(placed, batch) as done:
                swap = looping.publish(placed.query, table(hashes, 1))
                drained = looping.drain(second, timeout_seconds=60)
            batch += len(done)
            placed.assert_moved(swap)
            assert not drained.ended
            assert second not in ran_on(looping, placed, batch - 1)
            kill(second)
            placed.feed(batch, batch + 1)
    assert failed == [0]
    assert placed.query.exception() is None
    same_rows(placed, run(totals))


@pytest.mark.rare
def test_an_executor_that_a_plan_has_named_dies_in_the_middle_of_a_batch(
    spark: SparkSession, balancer: skewless.Balancer, run: Callable[..., Run]
) -> None:
    enough(spark, 2)
    first, second = alive(spark)
    placed = run(slow)
    badly_placed(balancer, placed, first)
    with skewless.balance(spark, policy=None, placement="greedy", placement_pace=EAGER) as looping:
        batch = 3
        while second not in looping.placed(placed.query).values():
            assert batch < 14, looping.status()
            placed.feed(batch)
            batch += 1
            time.sleep(0.3)
        placed.add(batch)
        eventually(lambda: spark.sparkContext._jsc.sc().statusTracker().getActiveJobIds())
        kill(second)
        placed.feed(*range(batch + 1, batch + 4))
        assert second not in ran_on(looping, placed, batch + 3)
        assert placed.query.exception() is None
        wished = set(looping.placed(placed.query).values())
        assert wished <= set(alive(spark)) | {second}
        assert looping.status().queries[0].running
    same_rows(placed, run(totals))


@pytest.mark.rare
def test_an_executor_is_decommissioned_and_another_added_when_there_is_work(
    spark: SparkSession, run: Callable[..., Run]
) -> None:
    """Down by hand and up by the loop; the same rows, and no task fails."""
    enough(spark, 2)
    first, second = alive(spark)
    placed = run(slow).start()
    scale = skewless.Scale(min=1, max=2, target=0.3, slack=0.05, patience=2, cooldown_seconds=0)
    with failed_tasks(spark) as failed:
        placed.feed(0, 1)
        with skewless.balance(spark, policy=None) as by_hand, fed(placed, 2) as done:
            drained = by_hand.drain(second, decommission=True, timeout_seconds=120)
            assert drained.ended, drained
            eventually(lambda: alive(spark) == [first])
        batch = 2 + len(done)
        with pytest.raises(SettingError, match="last one"):
            skewless.balance(spark, policy=None).drain(first)
        # one executor is busy for more than 30% of the time: another is asked for, and comes
        with (
            skewless.balance(
                spark, policy=None, placement="greedy", placement_pace=EAGER, scale=scale
            ) as scaling,
            fed(placed, batch) as done,
        ):
            eventually(lambda: len(alive(spark)) == 2, 120)
            fresh = next(e for e in alive(spark) if e != first)
            eventually(lambda: fresh in scaling.loads(placed.query)[-1].executors, 120)
    assert failed == [0]
    same_rows(placed, run(totals))
