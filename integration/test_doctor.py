"""`skewless.doctor` on sessions, one sound and several broken, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.conftest import ROOT

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SCRIPT = """
import json, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import skewless
from skewless.spark.jar import jar_path
from skewless.spark.submitted import *
base = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = ({how}).getOrCreate()
{then}
found = skewless.doctor()
print("FOUND", json.dumps(found.as_dict()))
"""
SET = "skewless.configure(base.config('spark.sql.shuffle.partitions', '2'))"
BY_HAND = "base.config('spark.sql.shuffle.partitions', '2').config('spark.jars', str(jar_path()))"


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        (SET, []),
        ("base", ["plugin", "extension", "provider", "Skewless"]),
        (BY_HAND, ["plugin", "extension", "provider", "Skewless"]),
        (f"{BY_HAND}.config(PROVIDER_KEY, PROVIDER).config(PLUGINS_KEY, PLUGIN)", ["extension", "Skewless"]),
        (
            f"{BY_HAND}.config(PROVIDER_KEY, PROVIDER).config(EXTENSIONS_KEY, EXTENSION)",
            ["plugin", "Skewless"],
        ),
        (
            f"{SET}.config(PROVIDER_KEY, 'org.apache.spark.sql.execution.streaming.state."
            "HDFSBackedStateStoreProvider')",
            ["provider"],
        ),
        ("skewless.configure(base.config('spark.sql.shuffle.partitions', '1'))", ["slots"]),
    ],
)
def test_each_broken_session_is_told_what_it_lacks(run_python: Run, how: str, wrong: list[str]) -> None:
    out = run_python(SCRIPT.format(how=how, then="")).stdout
    found = json.loads(out.split("FOUND ", 1)[1])
    assert [finding["what"] for finding in found["findings"] if not finding["ok"]] == wrong, found
    assert found["ok"] is (not wrong)
    assert all(finding["remedy"] for finding in found["findings"] if not finding["ok"])


def test_fewer_partitions_than_slots_are_counted(run_python: Run) -> None:
    how = "skewless.configure(base.master('local[4]').config('spark.sql.shuffle.partitions', '3'))"
    out = run_python(SCRIPT.format(how=how, then="")).stdout
    [slots] = [f for f in json.loads(out.split("FOUND ", 1)[1])["findings"] if f["what"] == "slots"]
    assert slots["found"] == "3 shuffle partitions on 4 task slots: 1 of the slots have no work"
    assert "to 4 or more" in slots["remedy"]


def test_the_checkpoint_of_a_query_with_a_stock_provider(run_python: Run, tmp_path: Path) -> None:
    stock = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    then = f"""
for name, provider in (("stock", {stock!r}), ("ours", PROVIDER)):
    spark.conf.set(PROVIDER_KEY, provider)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = stream.groupBy("value").count()
    writer = counts.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", {str(tmp_path)!r} + "/" + name).start().awaitTermination()
    found = skewless.doctor(spark, {str(tmp_path)!r} + "/" + name)
    print("CHECKPOINT", name, [(f.what, f.found) for f in found.wrong])
"""
    out = run_python(SCRIPT.format(how=SET, then=then)).stdout
    assert "CHECKPOINT ours []\n" in out
    assert f"CHECKPOINT stock [('provider', '{stock}'), ('state', 'kept by {stock}')]" in out


def test_the_command_starts_a_session_and_says_it_by_its_exit_code() -> None:
    command = [sys.executable, "-m", "skewless", "doctor", "--session", "--json"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "python"), "PYSPARK_PYTHON": sys.executable}
    flags = "--master local[2] --conf spark.sql.shuffle.partitions={} pyspark-shell"
    for partitions, code in (("2", 0), ("1", 1)):
        env["PYSPARK_SUBMIT_ARGS"] = flags.format(partitions)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["ok"] is (code == 0)
