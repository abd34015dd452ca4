"""The table as a partition function for Python RDDs; `RoutedPartitioner.scala` is its twin for JVM RDDs."""

from __future__ import annotations

from collections.abc import Hashable

from pyspark.rdd import portable_hash

from skewless.errors import TableError
from skewless.model.table import Table


class RoutedPartitioner:
    """A partition function: `rdd.partitionBy(table.partitions, RoutedPartitioner(table))`.

    The key hash is PySpark's `portable_hash`, folded to 32 bits for the table; a key without an entry goes
    where PySpark puts it. Equal when its table is equal, so PySpark sees two RDDs routed alike as partitioned
    alike. A table with splits is refused: an RDD's partitioner promises that a key sits in one partition. So
    is another number of partitions than the table's, in the first task that partitions a row.
    """

    def __init__(self, table: Table) -> None:
        if not isinstance(table, Table):
            raise TableError(f"a RoutedPartitioner takes a skewless.Table, not {table!r}.")
        if table.has_splits:
            raise TableError(
                "a table with splits cannot partition an RDD: Spark takes a partitioner as a promise that a "
                "key sits in one partition. Use moves only, or skewless.repartition on a DataFrame."
            )
        self.table = table
        self._moves = dict(zip(table.move_hashes.tolist(), table.move_targets.tolist(), strict=True))
        self._targets: dict[int, Target] = {}

    def __call__(self, key: Hashable) -> int:
        portable = portable_hash(key)
        moved: int | None = self._moves.get(_fold(portable))
        partition = portable % self.table.partitions if moved is None else moved
        if partition not in self._targets:
            self._targets[partition] = Target.of(partition, self.table.partitions)
        return self._targets[partition]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoutedPartitioner) and other.table == self.table

    def __hash__(self) -> int:
        return hash(self.table)


class Target(int):
    """A partition that knows of how many it is one.

    PySpark tells a partition function nothing of the number that `partitionBy` was given: it takes what the
    function returns modulo that number. A table for another number would route silently wrong, so the modulo
    itself compares the two.

    >>> Target.of(3, 4) % 4
    3
    >>> Target.of(3, 4) % 2  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    skewless.errors.TableError: the table is for 4 partitions and partitionBy was given 2. ...
    """

    partitions: int

    @classmethod
    def of(cls, partition: int, partitions: int) -> Target:
        target = cls(partition)
        target.partitions = partitions
        return target

    def __mod__(self, number: int) -> int:
        if number != self.partitions:
            raise TableError(
                f"the table is for {self.partitions} partitions and partitionBy was given {number}. Write "
                "rdd.partitionBy(table.partitions, RoutedPartitioner(table))."
            )
        return int(self)


def rdd_key_hash(key: Hashable) -> int:
    """What a table for Python RDDs is keyed on. Ask the executors, where Spark fixes the seed that a string's
    hash depends on: `rdd.keys().distinct().map(lambda key: (key, rdd_key_hash(key)))`."""
    return _fold(portable_hash(key))


def _fold(portable: int) -> int:
    """PySpark's 64-bit hash as signed 32 bits; small hashes, such as those of small integers, stay
    themselves.

    >>> _fold(5), _fold(-1), _fold(1 << 31)
    (5, -1, -2147483648)
    """
    folded = (portable if -(1 << 31) <= portable < 1 << 31 else portable ^ (portable >> 32)) & 0xFFFFFFFF
    return folded - (1 << 32) if folded >= 1 << 31 else folded
