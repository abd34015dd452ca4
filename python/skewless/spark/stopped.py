"""Work on the checkpoint of a stopped query, in a local Spark session of its own.

Separate from the balancer because there is no query to ask: what is done is done to files, by the JVM, which
knows Spark's formats and every file system that Spark knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from skewless.spark.gateway import Gateway


@contextmanager
def gateway(app: str) -> Iterator[Gateway]:
    """A local session with Skewless. File systems are set up as for your jobs, in spark-defaults.conf."""
    from pyspark.sql import SparkSession

    from skewless.spark.session import configure

    builder = SparkSession.builder.appName(app).master("local[*]")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    spark = configure(builder).getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield Gateway(spark)
    finally:
        spark.stop()


@dataclass(frozen=True)
class Conversion:
    """What there is to convert, and the means to do it store by store."""

    gateway: Gateway
    java: Any

    @staticmethod
    def of(
        gateway: Gateway, location: str, checkpoint_format: int, file_sink: str | None = None
    ) -> Conversion:
        return Conversion(gateway, gateway.conversion(location, checkpoint_format, file_sink))

    @property
    def batch(self) -> int:
        """The batch that the conversion will be."""
        return int(self.java.batch())

    @property
    def state_bytes(self) -> int:
        return int(self.java.bytes())

    @property
    def stores(self) -> list[str]:
        return [str(self.java.describe(store)) for store in range(int(self.java.stores()))]

    def copy(self, store: int) -> int:
        """The number of rows of a store, copied."""
        return self.gateway.copy_store(self.java, store)

    def commit(self) -> str:
        return self.gateway.commit_conversion(self.java)
