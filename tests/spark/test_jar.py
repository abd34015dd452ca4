"""Which jar is taken: that of the Spark which would start here."""

from __future__ import annotations

from pathlib import Path

import pytest

from skewless.errors import SessionError, VersionError
from skewless.spark import jar as module
from skewless.spark.jar import jar_path, spark_lines


@pytest.fixture
def jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a jar for each line, and a SPARK_HOME without a Spark."""
    folder = tmp_path / "ours"
    folder.mkdir()
    for line in spark_lines():
        (folder / f"skewless-spark-{line}_2.13-1.0.jar").touch()
    monkeypatch.setattr(module, "_packaged", lambda: folder)
    monkeypatch.setattr(module, "_checkout", lambda: folder)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return folder


def spark(tmp_path: Path, version: str) -> None:
    (tmp_path / "spark" / "jars" / f"spark-core_2.13-{version}.jar").touch()


@pytest.mark.parametrize(("line", "version"), [(line, f"{line}.7") for line in spark_lines()])
def test_the_running_spark_chooses(jars: Path, tmp_path: Path, line: str, version: str) -> None:
    spark(tmp_path, version)
    assert jar_path().name == f"skewless-spark-{line}_2.13-1.0.jar"
    assert jar_path() == jar_path(line)


def test_a_spark_of_no_line_is_refused_by_name(jars: Path, tmp_path: Path) -> None:
    spark(tmp_path, "4.1.3")
    with pytest.raises(
        VersionError, match=rf"serves Spark {', '.join(spark_lines())}, and the Spark in .* 4.1.3"
    ):
        jar_path()


def test_without_a_spark_the_line_must_be_named(jars: Path) -> None:
    with pytest.raises(SessionError, match=r"no Spark here.*jar-path --spark"):
        jar_path()
    assert jar_path("4.2").is_file()


def test_a_jar_that_was_not_built_is_named(jars: Path, tmp_path: Path) -> None:
    (jars / "skewless-spark-4.3_2.13-1.0.jar").unlink()
    spark(tmp_path, "4.3.0")
    with pytest.raises(SessionError, match=r"the Skewless jar for Spark 4.3 is neither .* `make jars`"):
        jar_path()
