"""What a user has set already stays set: spark-defaults.conf, PYSPARK_SUBMIT_ARGS and packages, each in a
process of its own."""

from __future__ import annotations

import ast
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from integration.conftest import ROOT
from skewless.spark.jar import jar_path
from skewless.spark.submitted import EXTENSION, PLUGIN, PROVIDER, parsed

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
OTHER_PLUGIN = "org.apache.spark.deploy.DriverTimeoutPlugin"
OTHER_EXTENSION = "org.example.Delta"  # Spark says at WARN that it cannot load it, and so that it tried

SCRIPT = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import skewless
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = {make}.getOrCreate()
conf = spark.sparkContext.getConf()
for key in ("spark.jars", "spark.plugins", "spark.sql.extensions", "spark.sql.shuffle.partitions",
            "spark.sql.streaming.stateStore.providerClass"):
    print("SETTING", key, conf.get(key))
df = spark.range(100).selectExpr("id % 5 as k")
print("COUNT", skewless.repartition(df, 3, "k", table=skewless.Table(3, {{1: 2}})).count())
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
print("RESOURCE", loader.getResource("other.txt") is not None)
"""
PLAIN, CONFIGURED = SCRIPT.format(make="builder"), SCRIPT.format(make="skewless.configure(builder)")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A jar with one file in it."""
    content = tmp_path / "content"
    content.mkdir()
    (content / "other.txt").write_text("here")
    shutil.make_archive(str(tmp_path / "other"), "zip", content)
    return (tmp_path / "other.zip").rename(tmp_path / "other.jar")


@pytest.fixture
def defaults(tmp_path: Path, other: Path) -> dict[str, str]:
    """The environment of a machine whose spark-defaults.conf names things of others."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(
        f"spark.plugins {OTHER_PLUGIN}\nspark.sql.extensions={OTHER_EXTENSION}\n"
        f"spark.jars: {other}\nspark.sql.shuffle.partitions 7\n"
    )
    return {"SPARK_CONF_DIR": str(folder)}


def submit_args(*own: str, env: dict[str, str]) -> list[str]:
    command = [sys.executable, "-m", "skewless", "submit-args", *own]
    env = os.environ | {"PYTHONPATH": str(ROOT / "python")} | env
    return shlex.split(subprocess.check_output(command, text=True, env=env))


def settings(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith("SETTING ")]
    return {key: value for _, key, value in lines}


def check_kept(done: subprocess.CompletedProcess[str], other: Path) -> None:
    found = settings(done)
    assert found["spark.plugins"] == f"{OTHER_PLUGIN},{PLUGIN}"
    assert found["spark.sql.extensions"] == f"{OTHER_EXTENSION},{EXTENSION}"
    assert found["spark.sql.streaming.stateStore.providerClass"] == PROVIDER
    assert [Path(jar).name for jar in found["spark.jars"].split(",")] == [other.name, jar_path().name]
    assert f"Cannot use {OTHER_EXTENSION}" in done.stderr
    assert "COUNT 100" in done.stdout
    assert "RESOURCE True" in done.stdout


@pytest.mark.parametrize("way", ["configure", "submit-args", "both"])
def test_what_the_defaults_name_is_kept(
    run_python: Run, defaults: dict[str, str], other: Path, way: str
) -> None:
    command = () if way == "configure" else (SPARK_SUBMIT, *submit_args(env=defaults))
    done = run_python(PLAIN if way == "submit-args" else CONFIGURED, *command, env=defaults)
    check_kept(done, other)
    assert settings(done)["spark.sql.shuffle.partitions"] == "7"


@pytest.mark.parametrize("jars", ["--jars", "--conf spark.jars="])
def test_what_the_environment_names_is_kept(run_python: Run, other: Path, jars: str) -> None:
    given = f"{jars}{other}" if jars.endswith("=") else f"{jars} {other}"
    given += f" --conf spark.plugins={OTHER_PLUGIN} --conf spark.sql.extensions={OTHER_EXTENSION}"
    given += " --conf spark.sql.shuffle.partitions=7 pyspark-shell"
    check_kept(run_python(CONFIGURED, env={"PYSPARK_SUBMIT_ARGS": given}), other)


def test_what_ones_own_command_names_is_kept(run_python: Run, other: Path) -> None:
    own = ["--jars", str(other), "--conf", f"spark.plugins={OTHER_PLUGIN}"]
    own += ["--conf", f"spark.sql.extensions={OTHER_EXTENSION}", "--conf", "spark.sql.shuffle.partitions=7"]
    check_kept(run_python(PLAIN, SPARK_SUBMIT, *submit_args(*own, env={})), other)


def test_jars_that_spark_resolves_from_packages_stay(run_python: Run, other: Path, tmp_path: Path) -> None:
    home = tmp_path / "repository" / "org" / "example" / "other" / "1.0"
    home.mkdir(parents=True)
    other.rename(home / "other-1.0.jar")
    (home / "other-1.0.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>org.example</groupId><artifactId>other</artifactId><version>1.0</version></project>"
    )
    conf = {
        "spark.jars.packages": "org.example:other:1.0",
        "spark.jars.repositories": (tmp_path / "repository").as_uri(),
        "spark.jars.ivy": str(tmp_path / "ivy"),
    }
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{k} {v}\n" for k, v in conf.items()))
    done = run_python(CONFIGURED, env={"SPARK_CONF_DIR": str(tmp_path)})
    jars = [Path(jar).name for jar in settings(done)["spark.jars"].split(",")]
    assert sorted(jars) == ["org.example_other-1.0.jar", jar_path().name]
    assert "RESOURCE True" in done.stdout
    assert "COUNT 100" in done.stdout


def test_a_provider_of_the_users_own_is_kept_and_told(run_python: Run, tmp_path: Path) -> None:
    stock = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    (tmp_path / "spark-defaults.conf").write_text(f"spark.sql.streaming.stateStore.providerClass {stock}\n")
    done = run_python(CONFIGURED, env={"SPARK_CONF_DIR": str(tmp_path)})
    assert settings(done)["spark.sql.streaming.stateStore.providerClass"] == stock
    assert done.stderr.count("Skewless cannot balance them") == 1


def test_properties_are_read_as_java_reads_them(run_python: Run, tmp_path: Path) -> None:
    draw = random.Random(7)
    pieces = ["spark.a", "b", " ", "\t", "=", ":", "\\", "\n", "\r\n", "#", "!", "\\u0041", "\\t", "é"]
    texts = ["".join(draw.choices(pieces, k=draw.randint(1, 14))) for _ in range(400)]
    (tmp_path / "texts").write_text(repr(texts), encoding="utf-8")
    script = f"""
import ast
from pathlib import Path
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
java = spark._jvm.java
for text in ast.literal_eval(Path({str(tmp_path / "texts")!r}).read_text(encoding="utf-8")):
    found = java.util.Properties()
    try:
        found.load(java.io.StringReader(text))
    except Exception:
        print("JAVA", None)
    else:
        print("JAVA", ascii({{key: found.getProperty(key) for key in found.stringPropertyNames()}}))
"""
    lines = [line for line in run_python(script).stdout.splitlines() if line.startswith("JAVA ")]
    assert len(lines) == len(texts)
    read = 0
    for text, line in zip(texts, lines, strict=True):
        expected = ast.literal_eval(line.removeprefix("JAVA "))
        if expected is not None:  # Java stops at a broken unicode escape
            read += 1
            named = {key: value.strip() for key, value in expected.items() if key}
            assert {key: value for key, value in parsed(text).items() if key} == named, text
    assert read > 300
