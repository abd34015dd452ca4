"""One list of Spark lines: whatever else names a line must agree with it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from skewless.spark.jar import NEWEST_LINE, spark_lines

ROOT = Path(__file__).resolve().parent.parent


def test_the_list_names_each_line_with_a_version_of_it() -> None:
    assert spark_lines()
    assert all(version.startswith(line + ".") for line, version in spark_lines().items())


def test_the_readme_and_the_extra_name_the_lines_of_the_list() -> None:
    first, last = next(iter(spark_lines())), NEWEST_LINE
    major, minor = last.split(".")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"pyspark>={first},<{major}.{int(minor) + 1}" in project["optional-dependencies"]["spark"]
    assert f"For Spark {', '.join(spark_lines())} (" in (ROOT / "README.md").read_text()


def test_what_differs_between_lines_has_a_folder_for_each() -> None:
    folders = {folder.name for folder in (ROOT / "jvm" / "src" / "main").glob("scala-spark-*")}
    assert folders == {f"scala-spark-{line}" for line in spark_lines()}
