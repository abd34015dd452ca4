"""The only file that talks Py4J: calls into the jar, one direction, no callback and no port of our own.

Separate so that everything else deals in plain values; `Gateway.scala` is its other half.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from skewless import errors
from skewless.control.observed import ObservedBatch

JAVA_GATEWAY = "io.skewless.Gateway"
_EXCEPTION = "io.skewless.SkewlessException"


class Gateway:
    """The jar behind one classic Spark session; refuses a session that lacks a part of Skewless."""

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise errors.SessionError(
                "this is a Spark Connect session; Skewless works on the driver's own JVM, which Connect "
                "hides. Use a classic session (no .remote(...), SPARK_REMOTE unset) in the driver."
            )
        self._spark = spark
        self._loop = uuid4().hex  # what the loop that uses this is called in the JVM
        self._session = spark._jsparkSession
        self._java: Any = spark._jvm
        for name in JAVA_GATEWAY.split("."):
            self._java = getattr(self._java, name)
        self._call("check", self._session)

    def repartition(
        self, df: DataFrame, partitions: int, columns: Sequence[Column], table: bytes | None
    ) -> DataFrame:
        java = self._call("repartition", df._jdf, partitions, [column._jc for column in columns], table)
        return DataFrame(java, df.sparkSession)

    def key_hash(self, columns: Sequence[Column]) -> Column:
        return Column(self._call("keyHash", self._session, [column._jc for column in columns]))

    def publish(self, query: Any, table: bytes) -> tuple[int, int]:
        """(epoch, first batch under it)."""
        epoch, batch = self._call("publish", self._session, query._jsq, table)
        return int(epoch), int(batch)

    def release(self, query: Any) -> int:
        """The batch in which every key goes home; the checkpoint is plain Spark's after it."""
        return int(self._call("release", self._session, query._jsq))

    def newest_in_log(self, query: Any) -> int:
        """The newest batch in a query's commit log, which is right after its end too; -1 before the first."""
        return int(self._call("newestInLog", query._jsq))

    def release_checkpoint(self, location: str) -> str:
        """Gives a stopped query's checkpoint back to plain Spark: what was done, in a sentence."""
        return str(self._call("releaseCheckpoint", self._session, location))

    def undo_release(self, location: str) -> str:
        """Takes `release_checkpoint` back, as long as the query has not started since."""
        return str(self._call("undoRelease", self._session, location))

    def mend_checkpoint(self, location: str) -> str:
        """Takes back what an offline tool has left half-way."""
        return str(self._call("mendCheckpoint", self._session, location))

    def repartition_checkpoint(self, location: str, partitions: int) -> None:
        """Spark's own offline tool; it is done when this returns. What it has refused is mended: Spark opens
        a batch before it looks at the provider."""
        self._call("prepareRepartition", self._session, location)
        try:
            self._spark._streamingCheckpointManager.repartition(location, partitions)
        except (PySparkException, Py4JJavaError) as error:
            by_java = isinstance(error, Py4JJavaError)
            why = str(error.java_exception.getMessage()) if by_java else str(error)  # type: ignore[union-attr]
            refused = "UNSUPPORTED_PROVIDER" in why
            said = self.mend_checkpoint(location) if refused else "Run it again with the same number"
            raise errors.CheckpointError(
                f"{location} was not repartitioned: {why.splitlines()[0].rstrip('.')}. "
                + (
                    f"{said} Spark's tool takes RocksDB state only; see `skewless convert`."
                    if refused
                    else f"{said}, or see what Spark says of it."
                )
            ) from error

    def conversion(self, location: str, checkpoint_format: int, file_sink: str | None = None) -> Any:
        """What there is to convert: a `ConvertCheckpoint` of the JVM."""
        return self._call("conversion", self._session, location, checkpoint_format, file_sink)

    def copy_store(self, conversion: Any, store: int) -> int:
        """Copies one store: the number of its rows."""
        return int(self._call("copyStore", conversion, store))

    def commit_conversion(self, conversion: Any) -> str:
        return str(self._call("commitConversion", conversion))

    def drop_old(self, location: str) -> str:
        """Removes the state that the provider before a conversion has left."""
        return str(self._call("dropOld", self._session, location))

    def latest(self, query: Any) -> bytes | None:
        found = self._call("latest", query._jsq)
        return None if found is None else bytes(found)

    def table_at(self, query: Any, batch: int) -> bytes | None:
        """The table that a batch of a query runs under."""
        found = self._call("tableAt", query._jsq, batch)
        return None if found is None else bytes(found)

    def obstacle(self, query: Any) -> str | None:
        """Why this run of a query will take no table, as far as it is known by now."""
        found = self._call("obstacle", self._session, query._jsq)
        return None if found is None else str(found)

    def place(self, query: Any, wishes: dict[int, str]) -> None:
        java = self._spark._jvm.java.util.HashMap()  # type: ignore[union-attr]
        for partition, executor in wishes.items():
            java.put(partition, executor)
        self._call("place", query._jsq, java)

    def placed(self, query: Any) -> dict[int, str]:
        """The wishes in force, by partition."""
        return {int(p): str(executor) for p, executor in self._call("placed", query._jsq).items()}

    def executors(self) -> dict[str, int]:
        """The executors that take tasks, each with the tasks that it runs at once."""
        lines = str(self._call("executors", self._session)).splitlines()
        return {executor: int(slots) for executor, slots in (line.split() for line in lines)}

    def fixed_executors(self) -> str | None:
        """Why executors can be neither added nor ended here."""
        found = self._call("fixedExecutors", self._session)
        return None if found is None else str(found)

    def request_executors(self, total: int) -> bool:
        """Asks the cluster for so many in all; none is ended."""
        return bool(self._call("requestExecutors", self._session, total))

    def warm_executor(self, executor: str) -> None:
        """Has a new executor load what stateful tasks need; waits for it."""
        self._call("warmExecutor", self._session, executor)

    def end_executor(self, executor: str, wait_seconds: float) -> bool:
        """Ends an executor at a moment without a job: whether there was one within so many seconds. If not,
        nothing is changed."""
        return bool(self._call("endExecutor", self._session, executor, int(1000 * wait_seconds)))

    def loads(
        self, query_id: str
    ) -> list[
        tuple[int, int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], tuple[str | None, ...]]
    ]:
        """(batch, epoch, rows, bytes, run ms, executors) of each routed exchange, oldest first."""
        found = self._call("loads", self._session, query_id)
        return [
            (
                int(one.batchId()),
                int(one.epoch()),
                _longs(one.rows()),
                _longs(one.bytes()),
                _longs(one.runMs()),
                tuple(one.executors()),
            )
            for one in found
        ]

    def wait(self, seconds: float) -> bool:
        """Returns when a batch of any query has been committed or shown that this loop has not heard of, or
        after so many seconds; whether there is news."""
        return bool(self._call("await", self._session, self._loop, max(1, int(1000 * seconds))))

    def watch(self, query: Any, plan_wait_ms: int, look_ahead: bool) -> None:
        """From the next batch of this run on its keys are counted, and its planner waits for this loop."""
        self._call("watch", self._session, self._loop, query._jsq, plan_wait_ms, look_ahead)

    def newest(self, query_id: str) -> int:
        """The newest committed batch of a query; -1 before the first."""
        return int(self._call("newestCommitted", self._session, query_id))

    def observed(self, query_id: str, after: int) -> list[ObservedBatch]:
        """The committed batches above `after` of a query, oldest first; none if no exchange of it is
        routed."""
        return [_observed(one) for one in self._call("observed", self._session, query_id, after)]

    def upcoming(self, query_id: str) -> ObservedBatch | None:
        """The newest batch of a query that was shown before it was planned."""
        found = self._call("upcoming", self._session, query_id)
        return None if found is None else _observed(found)

    def decided(self, query_id: str, batch: int) -> None:
        """The query's planner need not wait for what becomes of batches up to this one."""
        self._call("decided", self._session, query_id, batch)

    def unwatch(self) -> None:
        """Ends the counting of keys that `watch` began, where no other loop watches too."""
        self._call("unwatch", self._session, self._loop)

    def unwatch_query(self, query: Any) -> None:
        """Ends the counting of one query's keys."""
        self._call("unwatchQuery", self._session, self._loop, query._jsq)

    def swaps(self, query: Any) -> list[dict[str, Any]]:
        """The committed swaps of the query's run, oldest first, as the JVM recorded them."""
        return [json.loads(str(swap)) for swap in self._call("swaps", query._jsq)]

    def show_metrics(
        self, query_id: str, imbalance: float | None, pause_ms: float | None, errors: int
    ) -> bool:
        """Hands what the loop knows of a query to Spark's metrics; false if they do not know the query
        yet."""
        return bool(self._call("showMetrics", self._session, query_id, imbalance, pause_ms, errors))

    def show(self, news: str) -> bool:
        """News for the tab in Spark's UI; false if there is nothing that keeps them."""
        return bool(self._call("show", self._session, news))

    def active(self) -> list[Any]:
        """The streaming queries of this session that run now."""
        return list(self._spark.streams.active)

    def alive(self) -> bool:
        """Whether the session can still be asked anything: false once its context, or the JVM, has
        stopped."""
        try:
            context = self._spark.sparkContext._jsc
            return context is not None and not context.sc().isStopped()
        except Exception:
            return False

    def same_session(self, other: Gateway) -> bool:
        """Two Python objects may stand for one session of the JVM."""
        try:
            return bool(self._session == other._session)
        except Exception:
            return False

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
    "the Skewless jar is not on the driver's class path. Build the session with skewless.configure(builder), "
    'or start the job with spark-submit --jars "$(skewless jar-path)". '
    "A JVM that started without the jar cannot take it later: restart Python."
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


def _observed(java: Any) -> ObservedBatch:
    """Whole arrays cross as bytes, little endian: one call per array, not one per element."""
    return ObservedBatch(
        batch=int(java.batchId()),
        epoch=int(java.epoch()),
        batch_ms=int(java.batchMs()),
        rows=np.frombuffer(java.rows(), dtype="<i8"),
        bytes=np.frombuffer(java.bytes(), dtype="<i8"),
        run_ms=np.frombuffer(java.runMs(), dtype="<i8"),
        start_ms=np.frombuffer(java.startMs(), dtype="<i8"),
        executors=np.frombuffer(java.executors(), dtype="<i4"),
        slots=np.frombuffer(java.executorSlots(), dtype="<i4"),
        locality_wait_ms=int(java.localityWaitMs()),
        committed_at=int(java.committedAt()) / 1000,
        key_hashes=np.frombuffer(java.keyHashes(), dtype="<i4"),
        key_rows=np.frombuffer(java.keyRows(), dtype="<i8"),
        sides=str(java.sides()),
        right_rows=np.frombuffer(java.rightRows(), dtype="<i8"),
        max_error=int(java.maxError()),
        sample_rate=float(java.sampleRate()),
        state_hashes=np.frombuffer(java.stateHashes(), dtype="<i4"),
        state_bytes=np.frombuffer(java.stateBytes(), dtype="<i8"),
        partition_state_bytes=np.frombuffer(java.partitionStateBytes(), dtype="<i8"),
        executor_ids=tuple(str(java.executorIds()).split()),
        busy_ms=np.frombuffer(java.executorBusyMs(), dtype="<i8"),
        cpu_ms=np.frombuffer(java.cpuMs(), dtype="<i8"),
        remote_bytes=np.frombuffer(java.remoteBytes(), dtype="<i8"),
        snapshot_versions=np.frombuffer(java.snapshotVersions(), dtype="<i8"),
        key_values={int(key_hash): str(value) for key_hash, value in json.loads(java.keyValues()).items()},
    )
