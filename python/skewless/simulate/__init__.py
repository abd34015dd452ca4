"""The simulator: every routing scheme of the papers over streams of keys, without Spark.

>>> from skewless.simulate import Cluster, simulate, zipf
>>> simulate(zipf(50_000, keys=1000, z=1.0), "shuffle", Cluster(4)).max_over_mean
1.0
"""

import sys
from types import ModuleType

from skewless.simulate.catalogue import NAMES, make
from skewless.simulate.cluster import Cluster, WorkerChange
from skewless.simulate.simulator import Result, compare, simulate
from skewless.simulate.streams.generators import (
    bursts,
    drifting_zipf,
    fluctuating,
    from_weights,
    lognormal_1,
    lognormal_2,
    zipf,
)
from skewless.simulate.streams.parquet import ParquetStream
from skewless.simulate.streams.stream import Stream, from_array, in_memory

__all__ = [
    "NAMES",
    "Cluster",
    "ParquetStream",
    "Result",
    "Stream",
    "WorkerChange",
    "bursts",
    "compare",
    "drifting_zipf",
    "fluctuating",
    "from_array",
    "from_weights",
    "in_memory",
    "lognormal_1",
    "lognormal_2",
    "make",
    "simulate",
    "zipf",
]


class _Room(ModuleType):
    """`skewless.simulate(stream, policy, cluster)` is what a user types; the room has the same name."""

    __call__ = staticmethod(simulate)


sys.modules[__name__].__class__ = _Room
