"""The handle a user holds: a loop that levels running queries by itself, tables published by hand, and what
became of both."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from skewless.control.costs import CostFunction
from skewless.control.dry_run import DryRun, dry_run
from skewless.control.loop import Loop
from skewless.control.observed import ObservedBatch
from skewless.control.pace import Pace
from skewless.control.placement_pace import PlacementPace
from skewless.control.scaling import Scale
from skewless.control.settings import OFF, Settings
from skewless.errors import (
    CheckpointError,
    NotYetError,
    QueryError,
    SettingError,
    SkewlessError,
    TableError,
)
from skewless.model.snapshot import imbalance_of
from skewless.model.table import Table
from skewless.policies import Limits, Policy
from skewless.policies.groups import PlacementPolicy
from skewless.policies.splits import SplitPolicy
from skewless.report.status import Status
from skewless.spark import drain
from skewless.spark.drain import Drained
from skewless.spark.gateway import Gateway
from skewless.spark.session import check_session
from skewless.wording import counted

DRY_SECONDS = 60.0
DRY_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Swap:
    """A published table: its epoch and the first micro-batch that runs under it."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class Release:
    """A query that was given back: in `batch` every key went home. Once the batch after it has begun, plain
    Spark can go on with the checkpoint."""

    batch: int

    @property
    def plain_from(self) -> int:
        return self.batch + 1


@dataclass(frozen=True)
class BatchLoads:
    """What each partition of a routed exchange carried in one batch, and the executor whose task read it.
    `run_ms` is -1 and the executor None where no task has ended yet."""

    batch: int
    epoch: int
    rows: NDArray[np.int64]
    bytes: NDArray[np.int64]
    run_ms: NDArray[np.int64]
    executors: tuple[str | None, ...] = ()

    @property
    def imbalance(self) -> float:
        """The heaviest partition's rows over the mean, less one; 0 is level."""
        return imbalance_of(self.rows.astype(np.float64)) if len(self.rows) else 0.0


class Balancer:
    """Made by `skewless.balance(spark)`; also a context manager."""

    def __init__(self, gateway: Gateway, loop: Loop) -> None:
        self._gateway = gateway
        self._loop = loop
        self._looking = threading.Lock()

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
            swap = Swap(*self._gateway.publish(query, table.encode()))
        except SkewlessError:
            raise
        except Exception as error:
            if (reason := _file_trouble(error)) is None:
                raise
            raise CheckpointError(
                f"the table cannot be stored under the checkpoint of query {query.name or query.id}: {reason}"
                ". Give the driver the right to write there; the old table stays in force."
            ) from error
        self._look()
        return swap

    def release(self, query: StreamingQuery, timeout_seconds: float | None = None) -> Release:
        """Takes every key home and gives the checkpoint back to plain Spark: from the batch after the
        returned one on a start needs no jar. Waits until the batch that takes the keys home is committed, so
        the query needs input. The query runs on, and takes no table any more in this run.

        Stopped before the next batch has begun, the checkpoint still names Skewless's provider: start the
        query once more for a batch, or run `skewless release CHECKPOINT`."""
        _check_query(query)
        if timeout_seconds is not None:
            _check_numbers(timeout_seconds=timeout_seconds)
        name, batch = query.name or query.id, self._gateway.release(query)
        started = time.monotonic()
        while self._gateway.newest(str(query.id)) < batch:
            if not query.isActive:
                if self._gateway.newest_in_log(query) >= batch:
                    break
                raise QueryError(
                    f"query {name} stopped before batch {batch}, which takes its keys home, was committed. "
                    "Nothing is lost: start it again, and release it again."
                )
            if timeout_seconds is not None and time.monotonic() - started > timeout_seconds:
                raise NotYetError(
                    f"batch {batch} of query {name}, which takes its keys home, is not committed after "
                    f"{timeout_seconds} seconds. It will be, once the query has input; call release again to "
                    "wait for it."
                )
            time.sleep(0.05)
        return Release(batch)

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

    def place(self, query: StreamingQuery, wishes: Mapping[int, str]) -> None:
        """Which executor each partition of a query's state should run on, from the next batch that is planned
        on; takes the place of all wishes before, and an empty one leaves all to Spark again.

        A wish only: Spark follows it while the executor has a free slot within `spark.locality.wait`, and no
        result depends on it. The partition's state is loaded anew on its new executor. All stateful stages of
        the query have the same wishes. An executor that dies is dropped from them by itself; one that is not
        alive now is refused. Lost when the query stops."""
        _check_query(query)
        checked = _checked_wishes(wishes)
        self._gateway.place(query, checked)

    def placed(self, query: StreamingQuery) -> dict[int, str]:
        """What was last wished for with `place`; where the tasks ran is in `loads(query)[-1].executors`."""
        _check_query(query)
        return self._gateway.placed(query)

    def drain(
        self,
        executor: str,
        decommission: bool = False,
        timeout_seconds: float | None = drain.TIMEOUT_SECONDS,
    ) -> Drained:
        """Empties an executor: its partitions are wished for on the others, over several batches, and no
        partition is planned onto it until `undrain`. Returns when none is held there, so that it may be
        ended; with `decommission` it has been, between batches. Queries need input for it: a partition
        moves with a batch."""
        if timeout_seconds is not None:
            _check_numbers(timeout_seconds=timeout_seconds)
        return drain.drain(self._gateway, self._loop, executor, decommission, timeout_seconds)

    def undrain(self, executor: str) -> None:
        """The executor may be given partitions again."""
        self._loop.placer.stay(executor)

    def status(self) -> Status:
        """What the loop sees, does and has done, query by query: `print` it, or end a notebook's cell with
        it."""
        self._look()
        return self._loop.status()

    def balance_only(self, *queries: StreamingQuery | str) -> None:
        """From now on the loop levels these queries and no others; a query or the name given to `queryName`,
        which need not run yet."""
        self._loop.choice.balance_only(*queries)

    def exclude(self, *queries: StreamingQuery | str) -> None:
        """From now on the loop leaves these queries alone: tables that they have stay in force, and their
        keys are counted no more."""
        self._loop.choice.exclude(*queries)

    def dry_run(
        self, query: StreamingQuery, policy: str | Policy | None = None, seconds: float = DRY_SECONDS
    ) -> DryRun:
        """What the loop would do with this query now, and what it would bring; nothing is published. `print`
        it. With `policy` by that policy, else by the loop's own, or Mixed.

        Where no loop counts the query's keys they are counted meanwhile, until a batch with rows is
        committed, for so many seconds at most."""
        _check_query(query)
        settings = self._loop.settings
        settings = replace(settings, policy=policy or settings.policy or "mixed")
        obstacle = self._gateway.obstacle(query)
        batches = self._counted(query) or self._count(query, seconds, obstacle)
        found = self._gateway.table_at(query, batches[-1].batch)
        table = Table(batches[-1].partitions) if found is None else Table.decode(found)
        return dry_run(query.name or str(query.id), batches, table, settings, obstacle)

    def _counted(self, query: StreamingQuery) -> list[ObservedBatch]:
        """The last batches with rows whose keys were counted, all under one table."""
        seen = [b for b in self._gateway.observed(str(query.id), -1) if len(b.key_hashes) and b.rows.any()]
        return [b for b in seen if (b.epoch, b.partitions) == (seen[-1].epoch, seen[-1].partitions)]

    def _count(self, query: StreamingQuery, seconds: float, obstacle: str | None) -> list[ObservedBatch]:
        until = time.monotonic() + seconds
        self._gateway.watch(query, 0, False)
        try:
            while time.monotonic() < until and not (batches := self._counted(query)):
                time.sleep(DRY_POLL_SECONDS)
        finally:
            if self._loop.settings.by_hand or not self._loop.choice.wants(query):
                self._gateway.unwatch_query(query)
        if batches:
            return batches
        raise NotYetError(
            f"query {query.name or query.id} committed no batch with counted keys within {seconds:g} s. "
            + (f"It cannot be balanced: {obstacle}" if obstacle else "Ask again when it has rows to process.")
        )

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Writes one HTML file, with plots, of all that `status` knows and the batches behind it; needs no
        network to read."""
        from skewless.report.page import write

        return write(path, self.status())

    def _look(self) -> None:
        """A loop looks by itself; by hand a look is taken when somebody asks."""
        if self._loop.settings.by_hand and not self._loop.running:
            with self._looking:
                self._loop.step()

    def stop(self) -> None:
        """Ends the loop, if there is one. Published tables stay in force: a query's routing is part of its
        checkpoint."""
        self._loop.stop()

    def __repr__(self) -> str:
        status = self.status()
        seen = f", {counted(len(status.queries), 'query')} seen"
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
    forecast: str = Settings.forecast,
    forecast_folder: str | None = Settings.forecast_folder,
    splits: str | SplitPolicy = Settings.splits,
    placement: str | PlacementPolicy = Settings.placement,
    scale: Scale | None = None,
    placement_pace: PlacementPace | None = None,
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
    forecast        plan for the shares that the hottest keys will have in the next batches, not for those
                    that they had: "last", "ewma", "holt", "seasonal", "gru" (needs `skewless[forecast]`), or
                    "best", the one that has planned best on the query's own past. "none": plan for the past.
                    With look_ahead the batch's own counts are known, and no forecast is used
    forecast_folder a local folder that keeps what "gru" has learned, one file per query, over restarts
    splits          over how many partitions a hot key of a stream-stream join is spread: "off" (none is),
                    "auto" (the width that pays), or the name of a paper's policy
                    (`skewless.policies.splits.names()`). No other operator's keys are split
    placement       which executor holds which partition: "off" (Spark decides), or the policy that levels
                    partitions over executors, a name of `skewless.policies.groups.names()` or a function.
                    With policy=None that is all the loop does
    scale           how many executors there may be (`skewless.Scale`): more are asked for and idle ones are
                    emptied and ended, on standalone clusters and local-cluster; None: none
    placement_pace  how eager the loop is to place (`skewless.PlacementPace`)

    A session has one loop. The loop never fails a query: what goes wrong is logged and shown in `status()`.
    """
    check_session(spark)
    if policy is None and placement == OFF and scale is None:
        gateway = Gateway(spark)
        return Balancer(gateway, Loop(gateway, Settings(policy=None)))
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
        forecast,
        forecast_folder,
        splits,
        placement,
        scale,
        PlacementPace() if placement_pace is None else placement_pace,
    )
    gateway = Gateway(spark)
    if scale is not None and (obstacle := gateway.fixed_executors()) is not None:
        raise SettingError(f"scale cannot be used here: {obstacle}, or leave scale out.")
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


def _checked_wishes(wishes: Any) -> dict[int, str]:
    if not isinstance(wishes, Mapping):
        raise SettingError(
            f"wishes are a {type(wishes).__name__}. Give a dictionary: partition -> executor id."
        )
    for partition, executor in wishes.items():
        whole = isinstance(partition, (int, np.integer)) and not isinstance(partition, bool)
        if not whole or not 0 <= partition < 1 << 31 or not isinstance(executor, str):
            raise SettingError(
                f"{partition!r}: {executor!r} names no partition and executor. Give a whole number from 0 "
                'and an executor id in quotes, such as {0: "1"}.'
            )
    return {int(partition): executor for partition, executor in wishes.items()}


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
