"""Sessions on a local cluster with real executor JVMs, stateful queries on them, and scripts in processes of
their own."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

import skewless
from integration.state_run import BATCHES, STOCK, SWAPS, Run, key_hashes, table

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 8
# Checkpoint formats. The Scala suites run both; here the first one is for `make faults`.
FORMATS = [pytest.param(1, marks=pytest.mark.rare), 2]

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.warehouse.dir": "file:/tmp/skewless-warehouse",
    # what the first file of a process sets, its JVM gives to all
    "spark.skewless.observe.keyValues": "false",
}


def start(app: str, executors: int = 2, cores: int = 1, **conf: str) -> SparkSession:
    """A session with Skewless on executors of so many cores, all of them up."""
    builder = SparkSession.builder.appName(app).master(f"local-cluster[{executors},{cores},1024]")
    for key, value in (QUIET | {"spark.executor.memory": "1g"} | conf).items():
        builder = builder.config(key, value)
    spark = skewless.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    status = spark.sparkContext._jsc.sc().statusTracker()
    for _ in range(600):
        if len(status.getExecutorInfos()) > executors:
            return spark
        spark._jvm.java.lang.Thread.sleep(100)
    raise TimeoutError(f"{executors} executors did not come up in a minute")


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    module = request.module
    session = start(module.__name__, cores=getattr(module, "CORES", 1), **getattr(module, "CONF", {}))
    yield session
    session.stop()


@pytest.fixture
def balancer(spark: SparkSession) -> skewless.Balancer:
    return skewless.balance(spark, policy=None)  # tests publish by hand


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script in a Python, and so a JVM, of its own."""

    def run(
        script: str, *command: str, env: dict[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "script.py"
        path.write_text(script)
        done = subprocess.run(
            [*(command or (sys.executable,)), str(path)],
            env=os.environ | {"PYTHONPATH": str(ROOT / "python")} | (env or {}),
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """A folder in which tasks leave a mark: the executors share the driver's file system."""
    folder = tmp_path / "marks"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def hashes(spark: SparkSession) -> list[int]:
    found = key_hashes(spark)
    assert all(len(table(found, by)) for by in SWAPS.values() if by)
    return found


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    number = itertools.count()
    yield lambda build, **how: Run(spark, tmp_path / f"run-{next(number)}", build, **how)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """The same query on plain Spark, over all batches; run once for all tests that ask for it."""
    done: dict[Any, Run] = {}

    def outcome(build: Callable[[DataFrame], DataFrame], **how: Any) -> Run:
        if build not in done:
            done[build] = Run(spark, tmp_path_factory.mktemp("plain"), build, **how).start(STOCK)
            done[build].feed(*range(BATCHES))
            done[build].query.stop()
        return done[build]

    return outcome


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[str]:
    """A standalone master and two one-core workers on 127.0.0.2 and 127.0.0.3: its address. Logs go to
    `tmp_path`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    deploy = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    env = os.environ | {"SPARK_LOG_DIR": str(tmp_path), "SPARK_WORKER_DIR": str(tmp_path)}
    url = f"spark://127.0.0.1:{port}"
    commands = [
        [
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        ]
    ]
    for host in ("127.0.0.2", "127.0.0.3"):
        worker = [
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            host,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            url,
        ]
        commands.append(worker)
    started = [subprocess.Popen(deploy + command, env=env, stderr=subprocess.DEVNULL) for command in commands]
    yield url
    for process in started:
        process.kill()
