"""What spark-submit is given, read without a JVM; `integration/test_settings.py` compares it with Spark."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from skewless.errors import SettingError
from skewless.spark.jar import conf_path
from skewless.spark.submitted import (
    EXTENSION,
    EXTENSIONS_KEY,
    JARS_KEY,
    PACKAGES_KEY,
    PLUGIN,
    PLUGINS_KEY,
    PROVIDER,
    PROVIDER_KEY,
    environment_flags,
    flags_of,
    give_jars,
    properties,
    settings_of,
    submit_words,
)


@pytest.fixture
def defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A spark-defaults.conf to write into."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return tmp_path / "spark-defaults.conf"


def test_flags_win_over_files_and_files_over_defaults(defaults: Path, tmp_path: Path) -> None:
    defaults.write_text("spark.a default\nspark.b default\nspark.c default\nother.d default\n")
    (tmp_path / "own.conf").write_text("spark.a own\nspark.b own\n")
    own = ["--properties-file", str(tmp_path / "own.conf"), "--conf", "spark.a=flag"]
    assert settings_of(flags_of([])) == {"spark.a": "default", "spark.b": "default", "spark.c": "default"}
    assert settings_of(flags_of(own)) == {"spark.a": "flag", "spark.b": "own"}
    both = settings_of(flags_of([*own, "--load-spark-defaults"]))
    assert both == {"spark.a": "flag", "spark.b": "own", "spark.c": "default"}


def test_without_a_file_there_are_no_defaults(defaults: Path) -> None:
    assert settings_of(environment_flags()) == {}


def test_the_last_flag_counts_and_what_follows_the_job_is_the_jobs(defaults: Path) -> None:
    found = flags_of(
        shlex.split("-v --jars a.jar --jars=b.jar -c spark.x=1=2 --packages g:a:1 job.py --jars c")
    )
    assert (found.jars, found.packages, dict(found.conf)) == ("b.jar", "g:a:1", {"spark.x": "1=2"})
    assert found.others == ("-v", "--packages", "g:a:1")
    assert found.resource == ("job.py", "--jars", "c")
    assert settings_of(found) == {"spark.x": "1=2", JARS_KEY: "b.jar", PACKAGES_KEY: "g:a:1"}


def test_submit_args_append_to_what_the_defaults_say_and_leave_the_rest(defaults: Path) -> None:
    defaults.write_text(f"{EXTENSIONS_KEY} org.delta.Delta\n{JARS_KEY} delta.jar\nspark.x 1\n")
    found = flags_of(submit_words(flags_of(["--master", "yarn"]), "/our.jar"))
    assert settings_of(found) == {
        EXTENSIONS_KEY: f"org.delta.Delta,{EXTENSION}",
        PLUGINS_KEY: PLUGIN,
        PROVIDER_KEY: PROVIDER,
        JARS_KEY: "delta.jar,/our.jar",
        "spark.x": "1",
    }
    assert found.others == ("--master", "yarn")


def test_submit_args_of_submit_args_are_the_same(defaults: Path) -> None:
    once = submit_words(flags_of(["--conf", f"{PLUGINS_KEY}=a.B", "--verbose", "job.py"]), "/our.jar")
    assert submit_words(flags_of(once), "/our.jar") == once
    assert once[-1] == "job.py"


def test_a_provider_that_is_named_is_kept(defaults: Path) -> None:
    defaults.write_text(f"{PROVIDER_KEY}=org.example.Provider\n")
    assert settings_of(flags_of(submit_words(flags_of([]), "j")))[PROVIDER_KEY] == "org.example.Provider"


def test_jars_given_by_the_environment_leave_its_other_flags(
    defaults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = f"--master 'local[2]' --conf {JARS_KEY}=a.jar --conf 'spark.x=a b' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    give_jars("a.jar,our.jar")
    found = environment_flags()
    assert settings_of(found) == {"spark.x": "a b", JARS_KEY: "a.jar,our.jar"}
    assert found.others == ("--master", "local[2]")
    assert found.resource == ("pyspark-shell",)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    give_jars("our.jar")
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--jars our.jar pyspark-shell"


def test_what_cannot_be_read_is_told(defaults: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--jars has no value"):
        flags_of(["--jars"])
    with pytest.raises(SettingError, match="cannot be read"):
        properties(tmp_path / "none.conf")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf 'open")
    with pytest.raises(SettingError, match="Close its quotes"):
        environment_flags()


def test_the_conf_file_switches_on_what_configure_does() -> None:
    assert properties(conf_path()) == {
        PLUGINS_KEY: PLUGIN,
        EXTENSIONS_KEY: EXTENSION,
        PROVIDER_KEY: PROVIDER,
    }
