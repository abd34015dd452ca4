"""The simulator: every routing scheme of the papers over streams of keys, without Spark.

>>> from skewless.simulate import Cluster, simulate, zipf
>>> simulate(zipf(50_000, keys=1000, z=1.0), "shuffle", Cluster(4)).max_over_mean
1.0
"""

from skewless.simulate.catalogue import NAMES, make
from skewless.simulate.cluster import Change, Cluster
from skewless.simulate.generators import bursts, drifting_zipf, fluctuating, from_weights, lognormal_1, lognormal_2, zipf
from skewless.simulate.parquet import ParquetStream
from skewless.simulate.simulator import Result, compare, simulate
from skewless.simulate.streams import Stream, from_array, in_memory

__all__ = [
    "NAMES",
    "Change",
    "Cluster",
    "ParquetStream",
    "Result",
    "Stream",
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
