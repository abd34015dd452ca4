"""Aggregates whose partials merge: the value that says how, what tasks do with it, and ready-made ones."""

from skewless.operators.aggregates.aggregate import Aggregate
from skewless.operators.aggregates.space_saving import space_saving
from skewless.operators.aggregates.top_k import top_k
from skewless.operators.aggregates.totals import totals

__all__ = ["Aggregate", "space_saving", "top_k", "totals"]
