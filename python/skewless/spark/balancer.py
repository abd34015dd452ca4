"""The handle a user holds: a loop that levels running queries by itself, tables published by hand, and what
became of both."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from skewless.control.costs import CostFunction
from skewless.control.loop import Loop
from skewless.control.pace import Pace
from skewless.control.settings import Settings
from skewless.errors import CheckpointError, QueryError, SettingError, SkewlessError, TableError
from skewless.model.snapshot import imbalance_of
from skewless.model.table import Table
from skewless.policies import Limits, Policy
from skewless.policies.splits import SplitPolicy
from skewless.report.status import Status
from skewless.spark.gateway import Gateway
from skewless.spark.session import check_session
from skewless.wording import counted


@dataclass(frozen=True)
class Swap:
    """A published table: its epoch and the first micro-batch that runs under it."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class BatchLoads:
    """What each partition of a routed exchange carried in one batch. `run_ms` is -1 where no task has ended
    yet."""

    batch: int
    epoch: int
    rows: NDArray[np.int64]
    bytes: NDArray[np.int64]
    run_ms: NDArray[np.int64]

    @property
    def imbalance(self) -> float:
        """The heaviest partition's rows over the mean, less one; 0 is level."""
        return imbalance_of(self.rows.astype(np.float64)) if len(self.rows) else 0.0


class Balancer:
    """Made by `skewless.balance(spark)`; also a context manager."""

    def __init__(self, gateway: Gateway, loop: Loop | None = None) -> None:
        self._gateway = gateway
        self._loop = loop

    def publish(self, query: StreamingQuery, table: Table) -> Swap:
        """Stores the table under the query's checkpoint and pins the next micro-batch to it. The epoch is
        given out here; the table's own does not matter. On any error the old table stays in force. A loop
        that runs goes on from the table."""
        if not isinstance(table, Table):
            raise TableError(
                f"publish takes a skewless.Table, not a {type(table).__name__}. The old table stays in force."
            )
        _check_query(query)
        try:
            return Swap(*self._gateway.publish(query, table.encode()))
        except SkewlessError:
            raise
        except Exception as error:
            if (reason := _file_trouble(error)) is None:
                raise
            raise CheckpointError(
                f"the table cannot be stored under the checkpoint of query {query.name or query.id}: {reason}"
                ". Give the driver the right to write there; the old table stays in force."
            ) from error

    def table(self, query: StreamingQuery) -> Table | None:
        """The newest table published for a query, in this run or an earlier one."""
        _check_query(query)
        found = self._gateway.latest(query)
        return None if found is None else Table.decode(found)

    def loads(self, query: StreamingQuery | None = None) -> list[BatchLoads]:
        """The loads of a query's routed exchanges in the last batches, oldest first; of batch jobs without a
        query."""
        if query is not None:
            _check_query(query)
        return [BatchLoads(*load) for load in self._gateway.loads("" if query is None else str(query.id))]

    def status(self) -> Status:
        """What the loop sees, does and has done, query by query: `print` it, or end a notebook's cell with
        it."""
        if self._loop is None:
            return Status("no loop: tables are published by hand (policy=None)")
        return self._loop.status()

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes one HTML file, with plots, of all that `status` knows and the batches behind it; needs no
        network to read."""
        if self._loop is None:
            raise SettingError(
                "there is nothing to report: this balancer has no loop (policy=None). Give balance a policy."
            )
        from skewless.report.page import write

        return write(path, self._loop.status())

    def stop(self) -> None:
        """Ends the loop, if there is one. Published tables stay in force: a query's routing is part of its
        checkpoint."""
        if self._loop is not None:
            self._loop.stop()

    def __repr__(self) -> str:
        status = self.status()
        seen = "" if self._loop is None else f", {counted(len(status.queries), 'query')} seen"
        return f"<skewless.Balancer: {status.loop}{seen}>"

    def __enter__(self) -> Balancer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


_started: list[tuple[Gateway, Loop]] = []
_starting = threading.Lock()


def balance(
    spark: SparkSession,
    policy: str | Policy | None = "mixed",
    *,
    max_imbalance: float = Limits.max_imbalance,
    max_entries: int = Limits.max_entries,
    window: int = Settings.window,
    decay: float = Settings.decay,
    pace: Pace | None = None,
    cost: CostFunction | None = None,
    poll_seconds: float = Settings.poll_seconds,
    plan_wait_ms: int = Settings.plan_wait_ms,
    look_ahead: bool = Settings.look_ahead,
    splits: str | SplitPolicy = Settings.splits,
) -> Balancer:
    """Keeps every routed streaming query of the session level from now on, on a thread of its own; stop it
    with `stop()`.

    policy          a name (`skewless.policies.names()`), a function of (snapshot, table, limits), or None: no
                    loop
    max_imbalance   how far the heaviest partition may lie above the mean, as a share of the mean, before keys
                    are moved
    max_entries     how many keys a table may move
    window, decay   how many batches costs are taken from, and how much less each counts than the one after it
    pace            how eager the loop is: patience, cool-down, byte budgets (`skewless.Pace`)
    cost            your own measure of (key_hashes, rows), in seconds, instead of rows times seconds per row
    poll_seconds    how often the loop looks at its queries when no batch has been committed
    plan_wait_ms    how long the next batch may wait for the plan made from the last one (0: never, and the
                    plan takes effect in the batch after it if it comes too late)
    look_ahead      count the keys of each batch before it is routed, and make its table from them: for
                    batches that are long and keys that change from one to the next. Reads the input up to the
                    shuffle a second time, and waits up to plan_wait_ms (2 seconds if that is 0) for the plan.
                    A query whose input is shuffled or keeps state before that is planned from the past
    splits          over how many partitions a hot key of a stream-stream join is spread: "off" (none is),
                    "auto" (the width that pays), or the name of a paper's policy
                    (`skewless.policies.splits.names()`). No other operator's keys are split

    A session has one loop. The loop never fails a query: what goes wrong is logged and shown in `status()`.
    """
    check_session(spark)
    if policy is None:
        return Balancer(Gateway(spark))
    _check_numbers(
        max_imbalance=max_imbalance,
        max_entries=max_entries,
        window=window,
        decay=decay,
        poll_seconds=poll_seconds,
        plan_wait_ms=plan_wait_ms,
    )
    limits = Limits(max_imbalance=max_imbalance, max_entries=max_entries)
    settings = Settings(
        policy,
        limits,
        Pace() if pace is None else pace,
        window,
        decay,
        cost,
        poll_seconds,
        plan_wait_ms,
        look_ahead,
        splits,
    )
    gateway = Gateway(spark)
    with _starting:
        _started[:] = [(other, loop) for other, loop in _started if loop.running]
        if any(gateway.same_session(other) for other, _ in _started):
            raise SettingError(
                "this session is balanced already, and one loop serves all its queries. Call stop() of the "
                "first balancer before you start another, or pass policy=None to publish by hand."
            )
        loop = Loop(gateway, settings)
        loop.start()
        _started.append((gateway, loop))
    return Balancer(gateway, loop)


def _check_numbers(**settings: Any) -> None:
    """What is no finite number at all; the ranges are checked where the settings are kept."""
    for name, value in settings.items():
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not np.isfinite(value):
            raise SettingError(f"{name} is {value!r}. Give a number, without quotes.")


def _check_query(query: Any) -> None:
    if not hasattr(query, "runId"):
        raise QueryError(
            f"a streaming query is needed, not {query!r}. Give what writeStream.start() returned, or one of "
            "spark.streams.active."
        )


def _file_trouble(error: Exception) -> str | None:
    """The words of the IOException behind an error of the JVM; None if there is none."""
    java = getattr(error, "java_exception", None)
    while java is not None:
        kind = java.getClass()
        while kind is not None:
            if kind.getName() == "java.io.IOException":
                return f"{java.getClass().getSimpleName()}: {java.getMessage()}".rstrip(".")
            kind = kind.getSuperclass()
        java = java.getCause()
    return None
