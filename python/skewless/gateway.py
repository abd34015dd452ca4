"""The only file that talks Py4J: calls into the jar, one direction, no callback and no port of our own.

Apart so that everything else deals in plain values; `Gateway.scala` is its other half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from skewless import errors

JAVA_GATEWAY = "io.skewless.Gateway"
_EXCEPTION = "io.skewless.SkewlessException"


class Gateway:
    """The jar behind one classic Spark session; refuses a session that lacks a part of Skewless."""

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise errors.SessionError(
                "this is a Spark Connect session; Skewless works on the driver's own JVM, which Connect hides. Use a classic "
                "session (no .remote(...), SPARK_REMOTE unset) in the driver."
            )
        self._spark = spark
        self._session = spark._jsparkSession
        self._java: Any = spark._jvm
        for name in JAVA_GATEWAY.split("."):
            self._java = getattr(self._java, name)
        self._call("check", self._session)

    def repartition(self, df: DataFrame, partitions: int, columns: Sequence[Column], table: bytes | None) -> DataFrame:
        java = self._call("repartition", df._jdf, partitions, [column._jc for column in columns], table)
        return DataFrame(java, df.sparkSession)

    def key_hash(self, columns: Sequence[Column]) -> Column:
        return Column(self._call("keyHash", self._session, [column._jc for column in columns]))

    def publish(self, query: Any, table: bytes) -> tuple[int, int]:
        """(epoch, first batch under it)."""
        epoch, batch = self._call("publish", self._session, query._jsq, table)
        return int(epoch), int(batch)

    def latest(self, query: Any) -> bytes | None:
        found = self._call("latest", query._jsq)
        return None if found is None else bytes(found)

    def loads(self, query_id: str) -> list[tuple[int, int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """(batch, epoch, rows, bytes, run ms) of each routed exchange, oldest first."""
        found = self._call("loads", self._session, query_id)
        return [
            (int(one.batchId()), int(one.epoch()), _longs(one.rows()), _longs(one.bytes()), _longs(one.runMs())) for one in found
        ]

    def _call(self, method: str, *arguments: Any) -> Any:
        target: Callable[..., Any] = getattr(self._java, method, None) or _no_jar
        if not callable(target):
            raise errors.SessionError(_NO_JAR)
        lists = [self._java_list(a) if isinstance(a, list) else a for a in arguments]
        try:
            return target(*lists)
        except Py4JJavaError as error:
            raise _translated(error.java_exception, error) from error
        except PySparkException as error:
            cause = getattr(error, "_origin", None)
            raise (_translated(cause, error) if cause is not None else error) from error
        except (Py4JError, TypeError) as error:
            raise errors.SessionError(_NO_JAR) from error

    def _java_list(self, values: list[Any]) -> Any:
        java_list = self._spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for value in values:
            java_list.add(value)
        return java_list


_NO_JAR = (
    "the Skewless jar is not on the driver's class path. Build the session with skewless.configure(builder), or start the job "
    'with spark-submit --jars "$(skewless jar-path)". A JVM that started without the jar cannot take it later: restart Python.'
)


def _no_jar(*_: Any) -> Any:
    raise errors.SessionError(_NO_JAR)


def _translated(java: Any, error: Exception) -> Exception:
    """The Python error that the Java exception, or one of its causes, names."""
    seen = java
    while seen is not None:
        if seen.getClass().getName() == _EXCEPTION:
            kind: type[errors.SkewlessError] = getattr(errors, str(seen.getCode()), errors.SkewlessError)
            return kind(str(seen.getMessage()))
        seen = seen.getCause()
    return error


def _longs(java_array: Any) -> NDArray[np.int64]:
    return np.fromiter(java_array, dtype=np.int64)
