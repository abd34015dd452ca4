"""Switches Skewless on while a session is built: jar, plugin, extension and state store provider."""

from __future__ import annotations

import logging
import os
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from skewless.errors import SessionError, SettingError, VersionError
from skewless.spark.jar import NEWEST_LINE, jar_path, line_of, spark_lines
from skewless.spark.submitted import (
    EXTENSION,
    EXTENSIONS_KEY,
    JARS_KEY,
    PACKAGES_KEY,
    PLUGIN,
    PLUGINS_KEY,
    PROVIDER,
    PROVIDER_KEY,
    Flags,
    appended,
    environment_flags,
    give_jars,
    kept_out,
    settings_of,
)

__all__ = ["EXTENSION", "PLUGIN", "PROVIDER", "PROVIDER_KEY", "check_session", "configure", "next_line"]

ADOPT_KEY = "spark.skewless.adopt"

log = logging.getLogger("skewless")


def configure(builder: SparkSession.Builder, *, adopt: bool = False) -> SparkSession.Builder:
    """The builder with Skewless switched on. Jars, plugins and extensions that the builder, spark-submit's
    flags or spark-defaults.conf name already are kept, and Skewless's stand behind them; nothing else
    changes.

    New stateful queries keep their state with Skewless's provider (Spark's RocksDB provider, whose keys can
    move), unless a setting names another: that is kept, and a warning says what it means. A query takes its
    provider at its first start: existing checkpoints go on as they are, unless `adopt` is true. Then a query
    whose checkpoint names Spark's RocksDB provider is taken over at its next start (`spark.skewless.adopt`),
    and can be given back (`Balancer.release`, `skewless release`).

        spark = skewless.configure(SparkSession.builder.appName("clicks")).getOrCreate()

    Call it last: what the builder is told after it takes the place of what it is told here. Under
    spark-submit give the flags with `$(skewless submit-args)`: Spark reads jars before
    Python starts.
    """
    _check_version()
    _check_builder(builder)
    if not isinstance(adopt, bool):
        raise SettingError(f"adopt is {adopt!r}. Give True or False.")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # under spark-submit the JVM is there before Python is
    flags = environment_flags() if SparkContext._jvm is None else Flags()
    present = _present(builder, flags)
    if SparkContext._jvm is None:
        builder = _with_jar(builder, present, flags)
    elif not _has(SparkContext._jvm, PLUGIN):
        raise SessionError(
            "this process started its JVM without the Skewless jar, and a JVM cannot take it later. Call "
            "configure before the first session of the process; "
            "under spark-submit give --jars and the rest: spark-submit $(skewless submit-args) job.py."
        )
    builder = _with_provider(builder, present)
    if adopt:
        builder = builder.config(ADOPT_KEY, "true")
    builder = builder.config(PLUGINS_KEY, appended(present.get(PLUGINS_KEY), PLUGIN))
    return builder.config(EXTENSIONS_KEY, appended(present.get(EXTENSIONS_KEY), EXTENSION))


def check_session(spark: Any) -> None:
    """Refuses what is no session, by name; whether a session has all parts of Skewless the gateway asks."""
    if isinstance(spark, SparkSession):
        if spark._sc._jsc is None:
            raise SessionError(
                "this Spark session has stopped. Start another: skewless.configure(builder).getOrCreate()."
            )
        return
    if spark is None:
        raise SessionError(
            "there is no Spark session: None was given. Start one with "
            "skewless.configure(SparkSession.builder).getOrCreate() and pass it."
        )
    if isinstance(spark, SparkSession.Builder):
        raise SessionError("this is a builder, not a session yet. Call getOrCreate() on it first.")
    if isinstance(spark, (type, str, SparkContext)):
        raise SessionError(
            f"this is {spark!r}, not a Spark session. Pass what "
            "skewless.configure(SparkSession.builder).getOrCreate() returns."
        )


def next_line() -> str:
    """The first Spark line that this release does not serve."""
    major, minor = NEWEST_LINE.split(".")
    return f"{major}.{int(minor) + 1}"


def _check_version() -> None:
    if line_of(pyspark.__version__) is None:
        raise VersionError(
            f"this release of Skewless serves Spark {', '.join(spark_lines())}, pyspark here is "
            f"{pyspark.__version__}. Install pyspark>={next(iter(spark_lines()))},<{next_line()}."
        )


def _check_builder(builder: Any) -> None:
    if isinstance(builder, SparkSession):
        raise SessionError(
            "configure takes a builder, and this is a session that runs already: plugins, extensions and "
            "jars are taken at its start. Write skewless.configure(SparkSession.builder).getOrCreate() where "
            "the process starts its first session."
        )
    if not hasattr(builder, "_options") or not hasattr(builder, "getOrCreate"):
        raise SessionError(
            f"configure takes a builder, not {builder!r}. Write "
            "skewless.configure(SparkSession.builder).getOrCreate()."
        )
    if os.environ.get("SPARK_REMOTE") or "spark.remote" in builder._options:
        raise SessionError(
            "the builder makes a Spark Connect session; Skewless works on the driver's own JVM, which "
            "Connect hides. Use a classic session: no .remote(...), SPARK_REMOTE unset."
        )


def _present(builder: SparkSession.Builder, flags: Flags) -> dict[str, str]:
    """What plain Spark would take: the builder first, then what spark-submit is given or was given."""
    keys = (JARS_KEY, PACKAGES_KEY, PLUGINS_KEY, EXTENSIONS_KEY, PROVIDER_KEY)
    jvm = SparkContext._jvm
    if jvm is None:
        found = settings_of(flags)
    else:
        found = {key: str(jvm.java.lang.System.getProperty(key) or "") for key in keys}
    return found | {key: str(builder._options[key]) for key in keys if builder._options.get(key) is not None}


def _with_jar(builder: SparkSession.Builder, present: dict[str, str], flags: Flags) -> SparkSession.Builder:
    """Adds the jar where Spark will look for it.

    Jars on the builder do not do in two cases. Those of PYSPARK_SUBMIT_ARGS come after them on the command
    line and win. And they would take the place of the jars that spark-submit resolves from packages, so that
    executors would lack these.
    """
    given = flags.jars or flags.conf.get(JARS_KEY)
    jars = appended(given, *appended(present.get(JARS_KEY)).split(","), str(jar_path()))
    if given is None and not present.get(PACKAGES_KEY):
        return builder.config(JARS_KEY, jars)
    builder._options.pop(JARS_KEY, None)
    give_jars(jars)
    return builder


def _with_provider(builder: SparkSession.Builder, present: dict[str, str]) -> SparkSession.Builder:
    provider = present.get(PROVIDER_KEY)
    if not provider:
        return builder.config(PROVIDER_KEY, PROVIDER)
    if provider != PROVIDER:
        where = "the builder" if PROVIDER_KEY in builder._options else "spark-submit's settings"
        log.warning(kept_out(provider, where))
    return builder


def _has(jvm: Any, name: str) -> bool:
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception:
        return False
    return True
