"""Skewless keeps keyed work in Spark level while hot keys drift.

Tables, errors and policies need no Spark; what needs it is imported on first use, so `import skewless` works without pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skewless import errors
from skewless.table import Change, Table, compose, diff

if TYPE_CHECKING:
    from skewless import policies
    from skewless.balancer import Balancer, BatchLoads, Swap, balance
    from skewless.controller import Pace
    from skewless.operators.advise import advise
    from skewless.operators.partitioner import RoutedPartitioner, rdd_key_hash
    from skewless.operators.repartition import key_hash, repartition
    from skewless.plan import Plan
    from skewless.session import configure
    from skewless.snapshot import Snapshot
    from skewless.status import Status

_LAZY = {
    "Balancer": "skewless.balancer",
    "BatchLoads": "skewless.balancer",
    "Pace": "skewless.controller",
    "Plan": "skewless.plan",
    "Snapshot": "skewless.snapshot",
    "Status": "skewless.status",
    "Swap": "skewless.balancer",
    "balance": "skewless.balancer",
    "advise": "skewless.operators.advise",
    "RoutedPartitioner": "skewless.operators.partitioner",
    "key_hash": "skewless.operators.repartition",
    "rdd_key_hash": "skewless.operators.partitioner",
    "repartition": "skewless.operators.repartition",
    "configure": "skewless.session",
}

__all__ = [
    "Balancer",
    "BatchLoads",
    "Change",
    "Pace",
    "Plan",
    "RoutedPartitioner",
    "Snapshot",
    "Status",
    "Swap",
    "Table",
    "advise",
    "balance",
    "compose",
    "configure",
    "diff",
    "errors",
    "key_hash",
    "policies",
    "rdd_key_hash",
    "repartition",
]


def __getattr__(name: str) -> Any:
    if name == "policies":
        return import_module("skewless.policies")
    if name not in _LAZY:
        raise AttributeError(f"module 'skewless' has no attribute {name!r}")
    try:
        module = import_module(_LAZY[name])
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise errors.SessionError(
            f"skewless.{name} needs pyspark 4.2, which is not installed: pip install 'skewless[spark]'."
        ) from error
    return getattr(module, name)
