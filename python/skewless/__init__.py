"""Skewless keeps keyed work in Spark level while hot keys drift.

Tables, errors and policies need no Spark; what needs it is imported on first use, so `import skewless` works
without pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skewless import errors
from skewless.model.split import Split
from skewless.model.table import Change, Table, compose, diff

if TYPE_CHECKING:
    from skewless import forecast, policies, simulate
    from skewless.control.pace import Pace
    from skewless.control.placement_pace import PlacementPace
    from skewless.control.scaling import Scale
    from skewless.model.limits import Limits
    from skewless.model.plan import Moves, Plan
    from skewless.model.snapshot import Snapshot
    from skewless.operators.advise import advise
    from skewless.operators.aggregate import aggregate, apply_in_pandas
    from skewless.operators.aggregates.aggregate import Aggregate
    from skewless.operators.aggregates.check_merge import check_merge
    from skewless.operators.explain_skew import explain_skew
    from skewless.operators.group_decision import explain_aggregate
    from skewless.operators.join import explain_join, join
    from skewless.operators.partitioner import RoutedPartitioner, rdd_key_hash
    from skewless.operators.plan import plan
    from skewless.operators.repartition import key_hash, repartition
    from skewless.operators.window import window
    from skewless.policies import Policy
    from skewless.report.status import Status
    from skewless.spark.balancer import Balancer, BatchLoads, Release, Swap, balance
    from skewless.spark.doctor import doctor
    from skewless.spark.drain import Drained
    from skewless.spark.session import configure

    __version__: str

_LAZY = {
    "Balancer": "skewless.spark.balancer",
    "BatchLoads": "skewless.spark.balancer",
    "Drained": "skewless.spark.drain",
    "Limits": "skewless.model.limits",
    "Moves": "skewless.model.plan",
    "Policy": "skewless.policies",
    "Pace": "skewless.control.pace",
    "PlacementPace": "skewless.control.placement_pace",
    "Plan": "skewless.model.plan",
    "Scale": "skewless.control.scaling",
    "Snapshot": "skewless.model.snapshot",
    "Status": "skewless.report.status",
    "Release": "skewless.spark.balancer",
    "Swap": "skewless.spark.balancer",
    "balance": "skewless.spark.balancer",
    "Aggregate": "skewless.operators.aggregates.aggregate",
    "advise": "skewless.operators.advise",
    "aggregate": "skewless.operators.aggregate",
    "apply_in_pandas": "skewless.operators.aggregate",
    "check_merge": "skewless.operators.aggregates.check_merge",
    "explain_aggregate": "skewless.operators.group_decision",
    "explain_join": "skewless.operators.join",
    "explain_skew": "skewless.operators.explain_skew",
    "join": "skewless.operators.join",
    "RoutedPartitioner": "skewless.operators.partitioner",
    "key_hash": "skewless.operators.repartition",
    "rdd_key_hash": "skewless.operators.partitioner",
    "repartition": "skewless.operators.repartition",
    "configure": "skewless.spark.session",
    "doctor": "skewless.spark.doctor",
    "plan": "skewless.operators.plan",
    "window": "skewless.operators.window",
}

__all__ = [
    "Aggregate",
    "Balancer",
    "BatchLoads",
    "Change",
    "Drained",
    "Limits",
    "Moves",
    "Pace",
    "PlacementPace",
    "Plan",
    "Policy",
    "Release",
    "RoutedPartitioner",
    "Scale",
    "Snapshot",
    "Split",
    "Status",
    "Swap",
    "Table",
    "__version__",
    "advise",
    "aggregate",
    "apply_in_pandas",
    "balance",
    "check_merge",
    "compose",
    "configure",
    "diff",
    "doctor",
    "errors",
    "explain_aggregate",
    "explain_join",
    "explain_skew",
    "forecast",
    "join",
    "key_hash",
    "plan",
    "policies",
    "rdd_key_hash",
    "repartition",
    "simulate",
    "window",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in ("forecast", "policies", "simulate"):
        return import_module(f"skewless.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'skewless' has no attribute {name!r}")
    try:
        module = import_module(_LAZY[name])
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise errors.SessionError(
            f"skewless.{name} needs pyspark, which is not installed: pip install 'skewless[spark]'."
        ) from error
    return getattr(module, name)


def _version() -> str:
    """The installed release; of a checkout that was never installed, what its VERSION file says."""
    from importlib.metadata import PackageNotFoundError, version
    from pathlib import Path

    try:
        return version("skewless")
    except PackageNotFoundError:
        file = Path(__file__).resolve().parents[2] / "VERSION"
        return file.read_text().strip() if file.is_file() else "unknown"
