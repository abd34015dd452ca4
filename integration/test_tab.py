"""What people see in Spark's UI: the tab over HTTP, in the history server and in a browser; and queries that
cannot be balanced, by name."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import skewless
from skewless.spark.jar import jar_path
from skewless.spark.session import PROVIDER, PROVIDER_KEY

N = 4
CORES = 2
EVENTS = Path(tempfile.mkdtemp(prefix="skewless-events-"))
CONF = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.sql.shuffle.partitions": str(N),
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": EVENTS.as_uri(),
    "spark.eventLog.compress": "false",
    "spark.skewless.observe.keyValues": "true",
}
NAME = 'clicks <script>alert(1)</script> & "more"'
STOCK = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
EAGER = skewless.Pace(patience=1, cooldown_seconds=0)


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def eventually(found: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.2)


def start(df: DataFrame, home: Path, name: str, mode: str = "update", **trigger: str) -> None:
    writer = df.writeStream.outputMode(mode).format("noop").queryName(name)
    writer = writer.option("checkpointLocation", str(home / name.split(" ", maxsplit=1)[0]))
    (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pages(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """The tab's two pages after a levelled query, and where the tab is."""
    home = tmp_path_factory.mktemp("tab")
    (home / "in").mkdir()
    hot = [row.k for row in _keys(spark).collect() if row.h % N == 1][:3]
    with skewless.balance(spark, max_imbalance=0.15, pace=EAGER, poll_seconds=0.05) as balancer:
        spark.conf.set(PROVIDER_KEY, PROVIDER)
        source = spark.readStream.schema("k STRING").option("maxFilesPerTrigger", 1).text(str(home / "in"))
        routed = skewless.repartition(source, N, F.col("k"))
        start(working(routed), home, NAME, "append")
        (query,) = spark.streams.active
        for number in range(5):
            lines = [hot[i % 3] for i in range(300)] + [f"cold-{i}" for i in range(100)]
            hidden = home / f".{number}"
            hidden.write_text("\n".join(lines))
            hidden.rename(home / "in" / f"{number}.txt")
            query.processAllAvailable()
            time.sleep(0.5)
        assert balancer.status().queries[0].swaps
        tab = f"{spark.sparkContext.uiWebUrl}/skewless/"
        page = f"{tab}query/?id={query.id}"
        eventually(lambda: "Swaps and splits" in get(page))
        shown = get(tab), get(page), tab
    query.stop()
    return shown


def working(df: DataFrame) -> DataFrame:
    """Rows that take their time, or there would be nothing to level."""

    def work(frames: Iterator[Any]) -> Iterator[Any]:
        import time

        for frame in frames:
            time.sleep(0.005 * len(frame))
            yield frame

    return df.mapInPandas(work, "k STRING")


def identity(page: str) -> str:
    """The id of the query that a page shows."""
    return page.split("<p>Query ", 1)[1][:36]


def _keys(spark: SparkSession) -> DataFrame:
    keys = spark.range(200).selectExpr("concat('customer-', id) as k")
    return keys.select("k", skewless.key_hash("k").alias("h"))


def test_the_tab_lists_the_queries_and_shows_each_in_plots(pages: tuple[str, str, str]) -> None:
    queries, query, tab = pages
    assert "clicks &lt;script&gt;alert(1)&lt;/script&gt; &amp; " in queries
    assert "alert(1)</script>" not in queries + query
    assert "the loop is running (policy mixed, max_imbalance 0.15" in queries
    assert query.count("<svg") == 4
    assert query.count("of the mean</title>") == 5 * N  # a cell per batch and partition
    for words in (
        "Load of each partition",
        "Batch time",
        "Hottest keys of batch 4, on 4 slots",
        "moved (hashes",
    ):
        assert words in query, words
    assert "customer-" not in query  # values of keys would enter the event log
    nobody = get(f"{tab}query/?id={urllib.parse.quote('<script>alert(1)</script>')}")
    assert "Nothing is known of a query with this id." in nobody
    assert "alert(1)" not in nobody


def test_a_query_that_cannot_be_balanced_is_named_with_its_reason(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spark.conf.set(PROVIDER_KEY, PROVIDER)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    every = {"processingTime": "1 second"}
    start(rows, tmp_path, "stateless", "append", **every)
    start(rows.groupBy().count(), tmp_path, "all-in-one", **every)
    spark.conf.set(PROVIDER_KEY, STOCK)
    start(rows.groupBy("value").count(), tmp_path, "stock", **every)
    spark.conf.set(PROVIDER_KEY, PROVIDER)
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    start(rows.groupBy("value").count(), tmp_path, "one-partition", **every)
    spark.conf.set("spark.sql.shuffle.partitions", str(N))
    start(rows, tmp_path, "continuous", "append", continuous="1 second")
    expected = {
        "stateless": "no exchange of it is routed",
        "all-in-one": "all rows of its stateful step meet in one partition",
        "stock": STOCK,
        "one-partition": "its state lies in one partition",
        "continuous": "it does not run in micro-batches",
    }
    with skewless.balance(spark, pace=EAGER, poll_seconds=0.05) as balancer:
        why: dict[str, str] = {}

        def told() -> bool:
            why.update({query.name: query.why for query in balancer.status().queries})
            return all(why.get(name, "").startswith("cannot be balanced: ") for name in expected)

        eventually(told, 120)
    for query in spark.streams.active:
        if query.name in expected:
            query.stop()
    for name, words in expected.items():
        assert words in why[name], why
        warnings = [r for r in caplog.records if f"query {name} cannot be balanced" in r.getMessage()]
        assert [record.levelno for record in warnings] == [logging.WARNING], name


@pytest.mark.rare
def test_a_browser_draws_the_tab(pages: tuple[str, str, str], tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "this test needs Debian's chromium"
    picture = tmp_path / "tab.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1300,1500"]
    page = f"{pages[2]}query/?id={identity(pages[1])}"
    subprocess.run([chromium, *flags, f"--screenshot={picture}", page], check=True, timeout=120)
    dom = subprocess.run(
        [chromium, *flags, "--dump-dom", pages[2]], check=True, timeout=120, capture_output=True, text=True
    ).stdout
    assert picture.stat().st_size > 10_000
    assert "clicks &lt;script&gt;alert(1)&lt;/script&gt;" in dom


@pytest.mark.rare
def test_the_history_server_shows_the_same_pages(spark: SparkSession, pages: tuple[str, str, str]) -> None:
    """From the event log of the application, while it still runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    options = f"-Dspark.history.fs.logDirectory={EVENTS.as_uri()} -Dspark.history.ui.port={port}"
    server = subprocess.Popen(
        [str(spark_class), "org.apache.spark.deploy.history.HistoryServer"],
        env=os.environ | {"SPARK_DAEMON_CLASSPATH": str(jar_path()), "SPARK_HISTORY_OPTS": options},
        stderr=subprocess.DEVNULL,
    )
    try:
        tab = f"http://127.0.0.1:{port}/history/{spark.sparkContext.applicationId}/skewless/"

        def shown() -> bool:
            try:
                return "alert(1)" in get(tab)
            except OSError:
                return False

        eventually(shown, 120)
        page = get(f"{tab}query/?id={identity(pages[1])}")
        assert page.count("<svg") == 4
        assert page.count("of the mean</title>") == 5 * N
    finally:
        server.kill()
