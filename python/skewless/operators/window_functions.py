"""The window functions that can be cut into ranges: what a range sends on, and how a row takes what comes.

    function                     a range sends on          a row of a later range makes of it
    row_number, rank             its rows                  its own + all that came
    dense_rank                   its different order values
    count, sum                   its count, its sum        its own + all that came, null as nothing
    min, max                     its min, its max          the least, the greatest
    lag, lead by n               its last, first n values  those that its own range lacks

Separate from `window` because this knows functions one by one and that knows where rows go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import CalendarIntervalType, DataType, DecimalType, MapType, VariantType

from skewless.errors import WindowError
from skewless.operators import catalyst
from skewless.operators.split_join import holds
from skewless.operators.window_ranges import Order

COUNTING = ("row_number", "rank", "dense_rank", "count")
NEIGHBOURS = ("lag", "lead")
FARTHEST = 1000
"""So many values at most does a range send on for a lag or lead."""

KNOWN = (*COUNTING, "sum", "min", "max", *NEIGHBOURS)

WHY_NOT = {
    "ntile": "it needs the number of all rows of the key first",
    "percent_rank": "it needs the number of all rows of the key first",
    "cume_dist": "it needs the number of all rows of the key first",
    "avg": "take sum and count, and divide",
    "nth_value": "which row it takes among rows with equal order values is left to chance",
    "first": "which row it takes among rows with equal order values is left to chance",
    "last": "which row it takes among rows with equal order values is left to chance",
}


@dataclass(frozen=True)
class Function:
    """One column of the result. `value` and `offset` are those of lag and lead."""

    name: str
    kind: str
    column: Column
    value: Column | None = None
    offset: int = 0

    @property
    def by_rows(self) -> bool:
        """Whether it tells rows with equal order values apart."""
        return self.kind in ("row_number", *NEIGHBOURS)


def function_of(name: str, column: Column) -> Function:
    call = catalyst.call_of(column)
    if call is None:
        raise WindowError(
            f"{name} is {column}, and window takes bare calls of functions of pyspark.sql.functions, without "
            "over(): F.sum('price'). Compute with the results afterwards."
        )
    if call.name not in KNOWN or call.distinct:
        why = WHY_NOT.get(call.name, "DISTINCT" if call.distinct else "its parts do not make up the whole")
        raise WindowError(
            f"{name} is {call.name}, which cannot be cut into ranges: {why}. window takes "
            f"{', '.join(KNOWN)}; for others use Spark's own over()."
        )
    if call.name not in NEIGHBOURS:
        return Function(name, call.name, column)
    value, offset, _, ignores_nulls = call.arguments
    by = catalyst.literal_of(offset)
    if not isinstance(by, int) or by < 1 or catalyst.literal_of(ignores_nulls):
        raise WindowError(
            f"{name} is {call.name} by {by}; window takes a whole number of at least 1 and no ignoreNulls. "
            "For others use Spark's own over()."
        )
    return Function(name, call.name, column, value, by)


def why_whole(functions: Sequence[Function], types: Sequence[DataType], order: Sequence[Order]) -> str | None:
    """Why the columns of these types cannot be put together exactly of ranges; None if they can."""
    for function, of_type in zip(functions, types, strict=True):
        if function.kind == "sum" and isinstance(of_type, DecimalType) and of_type.precision > 37:
            return f"{function.name} is a sum of {of_type.simpleString()}, which has no digit to spare"
        if function.value is not None and len({one.descending for one in order}) > 1:
            return f"{function.name} is a {function.kind}, and the order rises and falls"
        if function.value is not None and holds(of_type, (MapType, VariantType, CalendarIntervalType)):
            return f"{function.name} is a {function.kind} of {of_type.simpleString()}, which has no order"
        if function.offset > FARTHEST:
            return f"{function.name} is a {function.kind} by more than {FARTHEST:,d} rows"
    return None


def sent(function: Function, order: Sequence[Order], values: Sequence[Column]) -> Column:
    """What a range sends on, as an aggregate of its rows."""
    if function.kind in ("row_number", "rank"):
        return F.count(F.lit(1))
    if function.kind == "dense_rank":
        return F.count_distinct(F.struct(*(one.column for one in order)))
    if function.value is None:
        return function.column
    falls = order[0].descending
    place = [
        F.struct(one.column.isNull() if one.nulls_last != falls else F.lit(False), one.column)
        for one in order
    ]
    ends = F.max_by if (function.kind == "lag") != falls else F.min_by
    return ends(F.struct(function.value.alias("value")), F.struct(*place, *values), function.offset)


def came(
    function: Function, sent_on: Column, of_type: DataType, before: WindowSpec, after: WindowSpec
) -> Column:
    """What came from the ranges `before` a range, or `after` it, over the ranges of its key."""
    if function.kind in ("min", "max"):
        return (F.min if function.kind == "min" else F.max)(sent_on).over(before)
    if function.value is None:
        total = F.sum(sent_on).over(before)
        return total.cast(of_type) if function.kind == "sum" else total
    nearest_last = F.collect_list(sent_on).over(before if function.kind == "lag" else after)
    return F.slice(F.flatten(F.reverse(nearest_last)), 1, function.offset)


def whole(
    function: Function, own: Column, carry: Column, of_type: DataType, rows: tuple[Column, Column]
) -> Column:
    """A row's result, from that of its own range and from what came; `rows` are how many rows of the range
    are before it and after it. Nothing came to rows of keys that are not cut."""
    if function.kind in COUNTING:
        return (own + F.coalesce(carry, F.lit(0))).cast(of_type)
    if function.kind == "sum":
        both = (own + carry).cast(of_type)
        return F.when(own.isNull(), carry).when(carry.isNull(), own).otherwise(both)
    if function.kind in ("min", "max"):
        return (F.least if function.kind == "min" else F.greatest)(own, carry)
    near = rows[0] if function.kind == "lag" else rows[1]
    missing = F.lit(function.offset - 1) - near
    carried = (missing >= 0) & (missing < F.coalesce(F.size(carry), F.lit(0)))
    return F.when(carried, F.get(carry, missing)["value"]).otherwise(own)
