"""Sessions on a local cluster with real executor JVMs, and scripts in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skewless

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 8

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.warehouse.dir": "file:/tmp/skewless-warehouse",
    "spark.skewless.observe.keyValues": "false",  # what the first file of a process sets, its JVM gives to all
}


def start(app: str, executors: int = 2, **conf: str) -> SparkSession:
    """A session with Skewless on `executors` one-core executors, all of them up."""
    builder = SparkSession.builder.appName(app).master(f"local-cluster[{executors},1,1024]")
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
    session = start(request.module.__name__, **getattr(request.module, "CONF", {}))
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
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run
