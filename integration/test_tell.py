"""What is told of a levelled query on real executors: metrics through a real sink, key values where asked
for, one line per swap."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import skewless
from integration.test_loop import EAGER, N, Stream
from skewless.spark.session import PROVIDER

HOME = Path(tempfile.mkdtemp(prefix="skewless-tell-"))
CORES = 2
SINK = "spark.metrics.conf.driver.sink.csv"
CONF = {
    "spark.sql.shuffle.partitions": str(N),
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.skewless.observe.keyValues": "true",
    f"{SINK}.class": "org.apache.spark.metrics.sink.CsvSink",
    f"{SINK}.directory": str(HOME / "metrics"),
    f"{SINK}.period": "1",
    "spark.metrics.namespace": "told",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": (HOME / "events").as_uri(),
    "spark.eventLog.compress": "false",
}
PREFIX = "told.driver.plugin.io.skewless.SkewlessPlugin"

for folder in ("metrics", "events"):
    (HOME / folder).mkdir()


def metric(name: str) -> float | None:
    """The newest value that the sink wrote."""
    file = HOME / "metrics" / f"{PREFIX}.{name}.csv"
    lines = file.read_text().split() if file.exists() else []
    return float(lines[-1].split(",")[1]) if len(lines) > 1 else None


def eventually(found: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not found() and time.monotonic() < end:
        time.sleep(0.2)
    return found()


@pytest.fixture(scope="module")
def hot(spark: SparkSession) -> list[str]:
    """Three keys that Spark hashes to one partition, and that nothing else is called."""
    rows = (
        spark.range(200)
        .selectExpr("concat('customer-', id) as k")
        .select("k", skewless.key_hash("k").alias("h"))
        .collect()
    )
    return [row.k for row in rows if row.h % N == 1][:3]


def test_metrics_values_and_log_lines_tell_what_the_loop_did(
    spark: SparkSession, hot: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, logger="skewless"),
        skewless.balance(spark, max_imbalance=0.15, pace=EAGER, poll_seconds=0.05) as balancer,
    ):
        stream = Stream(spark, tmp_path / "level", PROVIDER)
        name = f"query.{stream.query.id}"
        for number in range(6):
            random = Random(number)
            keys = [random.choice(hot) for _ in range(240)] + [
                f"cold-{random.randrange(60)}" for _ in range(160)
            ]
            stream.batch(number, keys, pause=0.7)
        status = balancer.status()
        text, html = str(status), balancer.report(tmp_path / "report.html").read_text()
        (query,) = status.queries
        last = query.last_batch
        assert last is not None

        # metrics, as the sink wrote them
        assert eventually(lambda: metric(f"{name}.imbalance") == pytest.approx(last.imbalance))
        assert metric(f"{name}.epoch") == query.epoch > 0
        assert metric(f"{name}.entries") == query.entries > 0
        assert metric(f"{name}.swaps") == len(query.swaps)
        assert metric(f"{name}.movedBytes") == query.bytes_moved > 0
        assert metric(f"{name}.exportMs") == query.swaps[-1].export_ms
        assert metric(f"{name}.pauseMs") == pytest.approx(query.swaps[-1].pause_ms)
        assert metric(f"{name}.errors") == 0
        assert metric("queries") == 1

        stream.query.stop()
        assert eventually(lambda: metric("queries") == 0)

    # values of keys, for people
    for key in hot:
        assert f'"{key}" (hash ' in text
        assert key in html
    lines = [record.getMessage() for record in caplog.records if " went to epoch " in record.getMessage()]
    assert len(lines) == len(query.swaps)
    assert any(key in lines[0] for key in hot)

    # and nowhere else: Spark's event log has the accumulator that carried them, without them
    events = "".join(file.read_text() for file in (HOME / "events").rglob("*") if file.is_file())
    assert "skewless key counts" in events
    assert not any(key in events for key in hot)
