"""`configure` on builders that never start a session."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import skewless
from skewless.errors import SessionError, SettingError
from skewless.spark import session as module
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
)

JAR = "/skewless.jar"


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No JVM, a jar that is only a name, and a spark-defaults.conf to write into."""
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(module, "jar_path", lambda: Path(JAR))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return tmp_path / "spark-defaults.conf"


def configured(**options: str) -> dict[str, Any]:
    builder = SparkSession.Builder()
    for key, value in options.items():
        builder = builder.config(key.replace("_", "."), value)
    return dict(skewless.configure(builder)._options)


def test_a_bare_builder_gets_all_parts() -> None:
    assert configured() == {
        JARS_KEY: JAR,
        PLUGINS_KEY: PLUGIN,
        EXTENSIONS_KEY: EXTENSION,
        PROVIDER_KEY: PROVIDER,
    }


def test_adopt_is_a_setting_of_the_application() -> None:
    options = skewless.configure(SparkSession.Builder(), adopt=True)._options
    assert options["spark.skewless.adopt"] == "true"
    with pytest.raises(SettingError, match="True or False"):
        skewless.configure(SparkSession.Builder(), adopt="yes")  # type: ignore[arg-type]


def test_what_the_defaults_name_is_kept_and_nothing_else_is_touched(defaults: Path) -> None:
    defaults.write_text(
        f"{EXTENSIONS_KEY} org.delta.Delta\n{PLUGINS_KEY}=org.example.Plugin\n"
        f"{JARS_KEY}: delta.jar\nspark.x 1\n"
    )
    assert configured(spark_y="2") == {
        JARS_KEY: f"delta.jar,{JAR}",
        PLUGINS_KEY: f"org.example.Plugin,{PLUGIN}",
        EXTENSIONS_KEY: f"org.delta.Delta,{EXTENSION}",
        PROVIDER_KEY: PROVIDER,
        "spark.y": "2",
    }


def test_the_builder_wins_over_the_defaults_as_in_spark(defaults: Path) -> None:
    defaults.write_text(f"{EXTENSIONS_KEY} org.delta.Delta\n")
    assert configured(spark_sql_extensions="mine.M")[EXTENSIONS_KEY] == f"mine.M,{EXTENSION}"


def test_configured_twice_is_configured_once() -> None:
    once = skewless.configure(SparkSession.Builder())
    before = dict(once._options)
    assert dict(skewless.configure(once)._options) == before


@pytest.mark.parametrize("given", ["--jars a.jar", f"--conf {JARS_KEY}=a.jar"])
def test_jars_of_the_environment_keep_their_place_there(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{given} --conf {PLUGINS_KEY}=a.P pyspark-shell")
    options = configured(spark_jars="b.jar")
    assert environment_flags().jars == f"a.jar,b.jar,{JAR}"
    assert JARS_KEY not in options
    assert options[PLUGINS_KEY] == f"a.P,{PLUGIN}"


def test_jars_that_packages_bring_are_not_replaced() -> None:
    options = configured(spark_jars="b.jar", spark_jars_packages="io.delta:delta:4")
    assert options[PACKAGES_KEY] == "io.delta:delta:4"
    assert JARS_KEY not in options  # Spark would take it in the place of what it resolved
    assert environment_flags().jars == f"b.jar,{JAR}"


def test_a_provider_of_the_users_own_is_kept_with_a_warning(
    defaults: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "skewless"):
        assert configured()[PROVIDER_KEY] == PROVIDER
        assert not caplog.records
        assert configured(spark_sql_streaming_stateStore_providerClass="a.B")[PROVIDER_KEY] == "a.B"
        defaults.write_text(f"{PROVIDER_KEY} c.D\n")
        assert PROVIDER_KEY not in configured()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "a.B in the builder, and it is kept" in caplog.messages[0]
    assert "c.D in spark-submit's settings" in caplog.messages[1]
    assert all("Skewless cannot balance them. Remove the setting" in message for message in caplog.messages)


@pytest.mark.parametrize("wrong", [None, "app", SparkSession, 7, {}])
def test_what_is_no_builder_is_refused(wrong: Any) -> None:
    with pytest.raises(SessionError, match=r"configure takes a builder, not .*SparkSession\.builder"):
        skewless.configure(wrong)


def test_a_session_in_the_place_of_a_builder_is_told_so() -> None:
    session = object.__new__(SparkSession)
    with pytest.raises(SessionError, match="this is a session that runs already"):
        skewless.configure(session)  # type: ignore[arg-type]
