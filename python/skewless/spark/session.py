"""Switches Skewless on while a session is built: jar, plugin, extension and state store provider."""

from __future__ import annotations

import os
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from skewless.errors import SessionError, VersionError
from skewless.spark.jar import SPARK_LINE, jar_path

PLUGIN = "io.skewless.SkewlessPlugin"
EXTENSION = "org.apache.spark.sql.skewless.SkewlessExtensions"
PROVIDER = "org.apache.spark.sql.skewless.SkewlessStateStoreProvider"
PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """The builder with Skewless switched on; jars, plugins and extensions that it names already are kept.

    New stateful queries keep their state with Skewless's provider (Spark's RocksDB provider, whose keys can
    move), unless the builder names another. A query takes its provider for good at its first start: existing
    checkpoints go on as they are.

        spark = skewless.configure(SparkSession.builder.appName("clicks")).getOrCreate()

    Under spark-submit give the jar with `--jars "$(skewless jar-path)"`: Spark reads jars before Python
    starts.
    """
    if not pyspark.__version__.startswith(SPARK_LINE + "."):
        raise VersionError(
            f"this release of Skewless serves Spark {SPARK_LINE}, pyspark here is {pyspark.__version__}. "
            f"Install pyspark>={SPARK_LINE},<{_next_line()}."
        )
    if os.environ.get("SPARK_REMOTE") or "spark.remote" in _options(builder):
        raise SessionError(
            "the builder makes a Spark Connect session; Skewless works on the driver's own JVM, which "
            "Connect hides. Use a classic session: no .remote(...), SPARK_REMOTE unset."
        )
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # under spark-submit the JVM is there before Python is
    if SparkContext._jvm is None:
        builder = _append(builder, "spark.jars", str(jar_path()))
    elif not _has(SparkContext._jvm, PLUGIN):
        raise SessionError(
            "this process started its JVM without the Skewless jar, and a JVM cannot take it later. Call "
            "configure before the first session of the process; "
            'under spark-submit give the jar with --jars "$(skewless jar-path)".'
        )
    if PROVIDER_KEY not in _options(builder) and not _submitted(PROVIDER_KEY):
        builder = builder.config(PROVIDER_KEY, PROVIDER)
    return _append(_append(builder, "spark.plugins", PLUGIN), "spark.sql.extensions", EXTENSION)


def _append(builder: SparkSession.Builder, key: str, value: str) -> SparkSession.Builder:
    present = [part for part in str(_options(builder).get(key) or _submitted(key)).split(",") if part]
    return builder.config(key, ",".join(present if value in present else [*present, value]))


def _options(builder: SparkSession.Builder) -> dict[str, Any]:
    return dict(builder._options)


def _submitted(key: str) -> str:
    """What spark-submit was given for a key: known once its JVM runs."""
    if SparkContext._jvm is None:
        return ""
    return str(SparkContext._jvm.java.lang.System.getProperty(key) or "")


def _has(jvm: Any, name: str) -> bool:
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception:
        return False
    return True


def _next_line() -> str:
    major, minor = SPARK_LINE.split(".")
    return f"{major}.{int(minor) + 1}"
