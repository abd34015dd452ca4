"""State follows its key on real executors: every query gives, batch by batch, the rows that plain Spark
gives.

Plain is Spark's own RocksDB provider and no table. `StateSwapSuite` does the same for the operators of the
JVM; here are Python's operators, restarts, and sessions that must not touch a checkpoint of ours. Faults are
in `test_state_faults.py`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

import skewless
from integration import state_run
from integration.conftest import FORMATS
from integration.state_run import OPERATORS, Run, collect, counts, swap_and_feed, table
from skewless.errors import QueryError
from skewless.spark.session import PROVIDER

CONF = state_run.CONF


@pytest.mark.parametrize("checkpoint_format", FORMATS)
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_the_rows_of_plain_spark_while_its_keys_move(
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    hashes: list[int],
    name: str,
    checkpoint_format: int,
) -> None:
    build, how = OPERATORS[name]
    swapped = run(build, checkpoint_format=checkpoint_format, **how)
    swap_and_feed(balancer, swapped, hashes)
    expected = plain(build, **how)
    assert expected.filled
    assert swapped.filled == expected.filled
    assert how.get("endless") or swapped.rows == expected.rows


def test_two_actions_in_foreach_batch_see_the_same_state(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int]
) -> None:
    swapped = run(counts, note=lambda df: (df.count(), collect(df)))
    swap_and_feed(balancer, swapped, hashes)
    assert swapped.rows == {batch: (len(rows), rows) for batch, rows in plain(counts).rows.items()}


def test_a_swap_may_be_the_first_batch_after_a_restart(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int]
) -> None:
    swapped = run(counts).start()
    swapped.feed(0, 1)
    first = balancer.publish(swapped.query, table(hashes, 1))
    swapped.query.stop()
    with pytest.raises(QueryError, match="it has stopped"):
        balancer.publish(swapped.query, table(hashes, 2))
    swapped.start().feed(2, 3)
    second = balancer.publish(swapped.query, table(hashes, 0))
    swapped.query.stop()
    swapped.start().feed(4, 5)
    assert (first, second) == (skewless.Swap(1, 2), skewless.Swap(2, 4))
    swapped.assert_moved(first, second)
    assert swapped.rows == plain(counts).rows


def test_a_swap_batch_that_is_replayed_moves_the_same_state_again(
    balancer: skewless.Balancer, run: Callable[..., Run], plain: Callable[..., Run], hashes: list[int]
) -> None:
    swapped = run(counts).start()
    swapped.feed(0, 1)
    first = balancer.publish(swapped.query, table(hashes, 1))
    swapped.feed(2)
    swapped.assert_moved(first)
    second = balancer.publish(swapped.query, table(hashes, 2))
    swapped.query.stop()
    commit = swapped.checkpoint / "commits" / "2"
    commit.unlink()
    commit.with_name(".2.crc").unlink(missing_ok=True)
    del swapped.rows[2]
    swapped.start().query.processAllAvailable()
    assert commit.exists(), "batch 2 was not replayed"
    swapped.feed(3, 4, 5)
    swapped.assert_moved(first, second)
    assert swapped.rows == plain(counts).rows


# Sessions and tools that must not touch a checkpoint of ours

STRANGER = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import skewless.spark.jar, skewless.spark.session
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
{builder}
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
stream = spark.readStream.schema("k string, v long, t long").option("maxFilesPerTrigger", 1).json({source!r})
writer = stream.groupBy("k").count().writeStream.outputMode("update").format("noop")
query = writer.option("checkpointLocation", {checkpoint!r}).start()
try:
    query.processAllAvailable()
    print("RAN")
except Exception:
    print("FAILED", query._jsq.exception().get().cause().toString())
"""
JAR_ONLY = """
builder = builder.config("spark.jars", str(skewless.spark.jar.jar_path()))
builder = builder.config(skewless.spark.session.PROVIDER_KEY, skewless.spark.session.PROVIDER)
"""


def moved_and_stopped(balancer: skewless.Balancer, swapped: Run, hashes: list[int]) -> None:
    """Two batches, the second under a table, which stays in force."""
    swapped.start().feed(0)
    swap = balancer.publish(swapped.query, table(hashes, 1))
    swapped.feed(1)
    swapped.assert_moved(swap)
    swapped.query.stop()


def test_a_session_without_the_extension_or_the_jar_cannot_go_on_with_moved_state(
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    plain: Callable[..., Run],
    hashes: list[int],
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    swapped = run(counts)
    moved_and_stopped(balancer, swapped, hashes)
    committed = swapped.committed()
    swapped.add(2)
    for builder, message in (
        (JAR_ONLY, "was not planned by Skewless"),
        ("", f"ClassNotFoundException: {PROVIDER}"),
    ):
        script = STRANGER.format(
            builder=builder, source=str(swapped.home / "source"), checkpoint=str(swapped.checkpoint)
        )
        out = run_python(script).stdout
        assert out.startswith("FAILED")
        assert message in out
        assert swapped.committed() == committed
    swapped.start().query.processAllAvailable()
    back = balancer.publish(swapped.query, table(hashes, 0))
    swapped.feed(3, 4, 5)
    swapped.assert_moved(back)
    assert swapped.rows == plain(counts).rows
