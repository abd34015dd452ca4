"""A query of plain Spark is put on Skewless and taken off again; before and after, it runs in a process that
has no jar.

Plain is that process too: pyspark alone, with whichever provider the checkpoint names. `HandoverSuite` does
the same for the operators of the JVM; here are Python's, the commands, and Spark's own tools.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

import skewless
from integration import state_run
from integration.conftest import ROOT
from integration.state_run import STOCK, N, Run, counts, table, totals
from skewless.errors import NotYetError, QueryError

CONF = state_run.CONF | {"spark.skewless.adopt": "true"}
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

PLAIN = """
import os, sys
from pathlib import Path
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from integration import state_run
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", state_run.N)
builder = builder.config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    spark._jvm.java.lang.Class.forName("io.skewless.Gateway")
    sys.exit("the jar is there")
except Exception:
    pass
run = state_run.Run(spark, Path({home!r}), state_run.{build}, checkpoint_format={checkpoint_format})
run.start({provider!r}).feed(*{batches!r})
run.query.stop()
print(run.rows)
"""


@pytest.fixture
def go_plain(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., None]:
    """Feeds batches to a query in a process without the jar."""

    def go(run: Run, *batches: int, provider: str = STOCK) -> None:
        script = PLAIN.format(
            home=str(run.home),
            build=run.build.__name__,
            checkpoint_format=run.checkpoint_format,
            provider=provider,
            batches=batches,
        )
        done = run_python(script, env={"PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"})
        run.rows |= ast.literal_eval(done.stdout.splitlines()[-1])

    return go


def command(*arguments: str) -> str:
    """What `skewless` prints, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "skewless", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr}"


def in_turn(run: Run) -> list[Any]:
    """The rows of each batch, whatever its number: what an offline tool does takes a number too."""
    return [rows for _, rows in sorted(run.rows.items())]


def test_converted_adopted_balanced_released_and_on_without_the_jar(
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    hashes: list[int],
    go_plain: Callable[..., None],
) -> None:
    query = run(totals)
    checkpoint = str(query.checkpoint)
    go_plain(query, 0, provider=HDFS)
    assert "nothing was written" in command("convert", checkpoint, "--dry-run")
    converted = command("convert", checkpoint, "--no-file-sink")
    assert "is a RocksDB checkpoint from batch 1 on" in converted, converted

    query.start(HDFS).feed(1)  # adopted in this batch: the checkpoint's provider wins over the session's
    with pytest.raises(NotYetError, match="second batch"):
        balancer.publish(query.query, table(hashes, 1))
    query.feed(2)
    swap = balancer.publish(query.query, table(hashes, 1))
    query.feed(3)
    query.assert_moved(swap)
    with pytest.raises(NotYetError, match="is not committed"):
        balancer.release(query.query, timeout_seconds=0)
    query.feed(4)
    back = balancer.release(query.query)
    assert back == skewless.Release(swap.batch + 1)
    assert back.plain_from == swap.batch + 2
    with pytest.raises(QueryError, match="is released"):
        balancer.publish(query.query, table(hashes, 2))
    query.feed(5)  # now that it has begun, the checkpoint is plain Spark's
    query.query.stop()

    go_plain(query, 6)
    expected = run(totals)
    go_plain(expected, *range(7))
    assert in_turn(query) == in_turn(expected)
    assert len(in_turn(query)) == 7


@pytest.mark.rare
def test_sparks_own_tools_work_on_what_is_ours_or_what_they_leave_is_mended(
    spark: SparkSession,
    balancer: skewless.Balancer,
    run: Callable[..., Run],
    hashes: list[int],
    go_plain: Callable[..., None],
) -> None:
    query = run(counts, checkpoint_format=2)
    checkpoint = str(query.checkpoint)
    go_plain(query, 0)
    query.start().feed(1, 2)
    swap = balancer.publish(query.query, table(hashes, 1))
    query.feed(3)
    query.assert_moved(swap)
    query.query.stop()

    # The state reader sees the state that a table placed, and each key once.
    state = spark.read.format("statestore").load(checkpoint)
    kept = sorted((row.key.k or "", row.value["count"]) for row in state.collect())
    newest = {k: count for batch in range(4) for k, count in query.rows[batch]}
    assert kept == sorted((k or "", count) for k, count in newest.items())
    assert {row.operatorName for row in spark.read.format("state-metadata").load(checkpoint).collect()}

    # Spark's repartition is refused, and blocks the query until it is mended.
    with pytest.raises(Exception, match="UNSUPPORTED_PROVIDER"):
        spark._streamingCheckpointManager.repartition(checkpoint, 2 * N)
    with pytest.raises(Exception, match="UNFINISHED_REPARTITION"):
        query.start().query.processAllAvailable()
    assert "skewless mend" in command("release", checkpoint)
    assert "the query goes on from batch 4" in command("mend", checkpoint)
    assert "epoch 1" in command("release", checkpoint)

    # Taken home and released, it is repartitioned by Spark, and adopted with the new number.
    query.start()
    home = balancer.publish(query.query, table(hashes, 0))
    query.feed(4)
    query.assert_moved(home)
    query.query.stop()
    done = command("repartition", checkpoint, str(2 * N), "--no-file-sink")
    assert "is plain Spark's from its next start on" in done, done
    assert f"has {2 * N} partitions" in done, done
    assert "was not repartitioned" in command(
        "repartition", checkpoint, str(2 * N), "--no-file-sink"
    )  # it has
    query.start().feed(5, 6)
    moved = balancer.publish(query.query, skewless.Table(2 * N, {h: (h + 1) % (2 * N) for h in hashes}))
    query.feed(7)
    query.assert_moved(moved)
    query.query.stop()
    expected = run(counts)
    go_plain(expected, *range(8))
    assert in_turn(query) == in_turn(expected)
    assert "chain: whole" in command("inspect", checkpoint)
