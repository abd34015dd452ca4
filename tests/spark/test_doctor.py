"""The doctor on broken machines and checkpoints; `integration/test_doctor.py` has the sessions."""

from __future__ import annotations

import json
import os
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import skewless
from skewless.spark import doctor as module
from skewless.spark.submitted import PLUGIN, PROVIDER, PROVIDER_KEY


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is wrong; a test breaks one thing. Returns its folder."""
    spark, java = tmp_path / "spark", tmp_path / "java"
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark-core_2.13-4.2.0.jar").touch()
    program(java / "bin" / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    with zipfile.ZipFile(tmp_path / "skewless.jar", "w") as jar:
        jar.writestr(PLUGIN.replace(".", "/") + ".class", b"")
    monkeypatch.setattr("pyspark.version.__version__", "4.2.1")
    monkeypatch.setattr(module, "jar_path", lambda: tmp_path / "skewless.jar")
    for name, value in (
        ("SPARK_HOME", str(spark)),
        ("SPARK_CONF_DIR", str(tmp_path)),
        ("JAVA_HOME", str(java)),
        ("PYSPARK_PYTHON", sys.executable),
        ("PYSPARK_SUBMIT_ARGS", "pyspark-shell"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    return tmp_path


def program(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def only_wrong(what: str, **arguments: Any) -> module.Finding:
    found = skewless.doctor(**arguments)
    assert [finding.what for finding in found.wrong] == [what], str(found)
    assert not found.ok
    assert found.wrong[0].remedy
    assert str(found).endswith("1 thing to mend")
    return found.wrong[0]


def test_nothing_is_wrong_with_a_sound_machine() -> None:
    found = skewless.doctor()
    assert found.ok, str(found)
    assert str(found).endswith("nothing is wrong")
    assert [finding.what for finding in found.findings] == [
        "Python",
        "pyspark",
        "Spark",
        "tasks",
        "Java",
        "jar",
        "settings",
    ]


def test_an_old_python(monkeypatch: pytest.MonkeyPatch, machine: Path) -> None:
    monkeypatch.setattr(module, "OLDEST_PYTHON", (sys.version_info[0], sys.version_info[1] + 1))
    assert "or newer" in only_wrong("Python").remedy


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.version", None)
    finding = only_wrong("pyspark")
    assert finding.found == "is not installed"
    assert finding.remedy == "pip install 'skewless[spark]'"


def test_a_pyspark_of_another_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", "4.1.0")
    assert only_wrong("pyspark").found == "4.1.0; this release serves Spark 4.2, 4.3"


@pytest.mark.parametrize("jar", ["spark-core_2.13-3.5.1.jar", "spark-core_2.12-4.2.0.jar", None])
def test_a_spark_home_with_another_spark_or_none(machine: Path, jar: str | None) -> None:
    (machine / "spark" / "jars" / "spark-core_2.13-4.2.0.jar").unlink()
    if jar:
        (machine / "spark" / "jars" / jar).touch()
    assert "SPARK_HOME" in only_wrong("Spark").remedy


def test_a_spark_home_of_another_line_than_pyspark(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "spark" / "jars" / "spark-core_2.13-4.2.0.jar").rename(
        machine / "spark" / "jars" / "spark-core_2.13-4.3.0.jar"
    )
    monkeypatch.setattr("pyspark.version.__version__", "4.2.1")
    finding = only_wrong("Spark")
    assert finding.found.endswith("is started by pyspark 4.2.1")
    assert finding.remedy.startswith("Install pyspark 4.3.x")


@pytest.mark.parametrize("line", ["echo 2.7", "exit 1"])
def test_another_python_in_the_tasks(monkeypatch: pytest.MonkeyPatch, machine: Path, line: str) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(program(machine / "python", line)))
    assert only_wrong("tasks").remedy.startswith(f"Set PYSPARK_PYTHON={sys.executable}")


def test_a_python_in_the_tasks_that_lacks_the_drivers_packages(
    monkeypatch: pytest.MonkeyPatch, machine: Path
) -> None:
    """The same version: what is missing would show only when the first pandas function fails."""
    bare = f'exec {sys.executable} -S -I "$@"'  # no site-packages
    monkeypatch.setenv("PYSPARK_PYTHON", str(program(machine / "python", bare)))
    finding = only_wrong("tasks")
    assert "lacks pandas, pyarrow, google.protobuf, which the driver's has" in finding.found
    assert finding.remedy.startswith(f"Set PYSPARK_PYTHON={sys.executable}")


@pytest.mark.parametrize("line", ["echo 'java version \"1.8.0_402\"' >&2", "echo hello", "exit 1"])
def test_a_java_that_is_too_old_or_does_not_work(machine: Path, line: str) -> None:
    program(machine / "java" / "bin" / "java", line)
    assert only_wrong("Java").remedy == "Install a JDK 17 and let JAVA_HOME name it."


def test_no_java(monkeypatch: pytest.MonkeyPatch, machine: Path) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(machine))
    assert "there is none" in only_wrong("Java").found


@pytest.mark.parametrize("content", [b"", b"no jar"])
def test_a_jar_that_is_damaged(machine: Path, content: bytes) -> None:
    (machine / "skewless.jar").write_bytes(content)
    assert "make jar" in only_wrong("jar").remedy


def test_no_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise skewless.errors.SessionError("the jar is not there. Install a built wheel.")

    monkeypatch.setattr(module, "jar_path", missing)
    finding = only_wrong("jar")
    assert (finding.found, finding.remedy) == ("the jar is not there", "Install a built wheel.")


def test_defaults_that_name_another_provider(machine: Path) -> None:
    (machine / "spark-defaults.conf").write_text(f"{PROVIDER_KEY} a.B\n")
    assert only_wrong("settings").found == f"{PROVIDER_KEY} is a.B"


def test_a_machine_that_is_set_up_for_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    assert "Unset SPARK_REMOTE" in only_wrong("settings").remedy


@pytest.mark.parametrize("wrong", ["local", object()])
def test_what_is_no_session(wrong: Any) -> None:
    only_wrong("session", spark=wrong)


# -- checkpoints ---------------------------------------------------------------------------------------------


def checkpoint(folder: Path, provider: str = PROVIDER, partitions: int = 4, stateful: bool = True) -> Path:
    conf = {PROVIDER_KEY: provider, "spark.sql.shuffle.partitions": str(partitions)}
    for name in ("offsets", "commits", *(["state/0"] if stateful else [])):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id": "7d0c"}')
    (folder / "offsets" / "0").write_text("v1\n" + json.dumps({"batchWatermarkMs": 0, "conf": conf}) + "\n{}")
    (folder / "commits" / "0").write_text("v1\n{}")
    return folder


def test_a_sound_checkpoint(tmp_path: Path) -> None:
    found = skewless.doctor(checkpoint=checkpoint(tmp_path / "c"))
    assert found.ok, str(found)
    assert [finding.what for finding in found.findings[-2:]] == ["checkpoint", "state"]


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ("a.B", "new checkpoint"),
        ("a.RocksDBStateStoreProvider", "spark.skewless.adopt=true"),
        ("a.HDFSBackedStateStoreProvider", "skewless convert"),
    ],
)
def test_a_checkpoint_with_another_provider(tmp_path: Path, provider: str, words: str) -> None:
    finding = only_wrong("state", checkpoint=checkpoint(tmp_path / "c", provider=provider))
    assert finding.found == f"kept by {provider}"
    assert words in finding.remedy


def test_a_stateless_query_needs_no_provider(tmp_path: Path) -> None:
    assert skewless.doctor(checkpoint=checkpoint(tmp_path / "c", provider="a.B", stateful=False)).ok


def test_a_checkpoint_with_one_partition(tmp_path: Path) -> None:
    only_wrong("partitions", checkpoint=checkpoint(tmp_path / "c", partitions=1))


def test_a_checkpoint_with_a_broken_pin(tmp_path: Path) -> None:
    pins = checkpoint(tmp_path / "c") / "_skewless" / "pins"
    pins.mkdir(parents=True)
    (pins / "1").write_text("not a pin")
    assert "_skewless/pins/1" in only_wrong("checkpoint", checkpoint=tmp_path / "c").found


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_that_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    assert "checkpointLocation" in only_wrong("checkpoint", checkpoint=tmp_path / name).remedy


def test_a_checkpoint_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)  # root may write anywhere
    for location in (str(folder), folder.as_uri()):
        assert "right to write" in only_wrong("rights", checkpoint=location).remedy
