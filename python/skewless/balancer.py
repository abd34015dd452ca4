"""The handle a user holds: publishes tables to running queries and tells what their partitions carried."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from skewless.errors import SettingError, TableError
from skewless.gateway import Gateway
from skewless.table import Table


@dataclass(frozen=True)
class Swap:
    """A published table: its epoch and the first micro-batch that runs under it."""

    epoch: int
    batch: int


@dataclass(frozen=True)
class BatchLoads:
    """What each partition of a routed exchange carried in one batch. `run_ms` is -1 where no task has ended yet."""

    batch: int
    epoch: int
    rows: NDArray[np.int64]
    bytes: NDArray[np.int64]
    run_ms: NDArray[np.int64]

    @property
    def imbalance(self) -> float:
        """The heaviest partition's rows over the mean, less one; 0 is level."""
        mean = float(self.rows.mean()) if len(self.rows) else 0.0
        return float(self.rows.max()) / mean - 1 if mean else 0.0


class Balancer:
    """Made by `skewless.balance(spark)`; also a context manager."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway = Gateway(spark)

    def publish(self, query: StreamingQuery, table: Table) -> Swap:
        """Stores the table under the query's checkpoint and pins the next micro-batch to it. The epoch is given out here; the
        table's own does not matter. On any error the old table stays in force."""
        if not isinstance(table, Table):
            raise TableError(f"publish takes a skewless.Table, not a {type(table).__name__}. The old table stays in force.")
        return Swap(*self._gateway.publish(query, table.encode()))

    def table(self, query: StreamingQuery) -> Table | None:
        """The newest table published for a query, in this run or an earlier one."""
        found = self._gateway.latest(query)
        return None if found is None else Table.decode(found)

    def loads(self, query: StreamingQuery | None = None) -> list[BatchLoads]:
        """The loads of a query's routed exchanges in the last batches, oldest first; of batch jobs without a query."""
        return [BatchLoads(*load) for load in self._gateway.loads("" if query is None else str(query.id))]

    def stop(self) -> None:
        """Ends the balancer. Published tables stay in force: a query's routing is part of its checkpoint."""

    def __enter__(self) -> Balancer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def balance(spark: SparkSession, policy: str | None = None) -> Balancer:
    """A balancer for the session. `policy=None`, so far the only one, starts no loop: tables are published by hand."""
    if policy is not None:
        raise SettingError(f"policy {policy!r}: this release publishes tables by hand only. Leave policy out.")
    return Balancer(spark)
