"""Spark's own plans and expressions, reached through a classic DataFrame: what a join is made of, and how a
DataFrame is made of a changed plan. Separate so that `join` and `explain_skew` deal in Columns and names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession

from skewless.errors import SessionError, SettingError

_BY_ORDER = re.compile(
    r"^[\s:+|-]*(GlobalLimit|LocalLimit|Offset|Tail|Sample|Deduplicate|Window|ScriptTransformation)\b", re.M
)

_ROW_BY_ROW = {
    "Project",
    "Filter",
    "Union",
    "Generate",
    "Expand",
    "EventTimeWatermark",
    "SubqueryAlias",
    "View",
}
_AS_THEY_ARE = {"Join", "Sort", "Repartition", "RepartitionByExpression"}
"""Which rows come out does not hang on the order of those that come in."""

_STEADY = _ROW_BY_ROW | _AS_THEY_ARE | {"Range", "LocalRelation", "StreamingRelation", "StreamingRelationV2"}


@dataclass(frozen=True)
class KeyPair:
    """One equality of a join's condition; `null_safe` if null equals null in it."""

    left: Column
    right: Column
    null_safe: bool


@dataclass(frozen=True)
class LogicalJoin:
    """A join as Spark has analysed it. `left` and `right` give the columns that `condition` names."""

    how: str
    left: DataFrame
    right: DataFrame
    keys: tuple[KeyPair, ...]
    condition: Column
    output: tuple[Column, ...]
    repeatable: bool
    root: Any

    def replaced_by(self, joined: DataFrame) -> DataFrame:
        """What Spark puts on top of the join, on top of `joined`, which must give the columns of
        `output`."""
        plan = _plan(joined)
        if name_of(self.root) != "Join":
            plan = self.root.withNewChildren(_seq(joined.sparkSession, [plan]))
        return _of_rows(joined.sparkSession, plan)


def require_classic(df: DataFrame, what: str) -> None:
    if not hasattr(df, "_jdf"):
        raise SessionError(
            f"{what} reads Spark's plan on the driver's own JVM, which Spark Connect hides. Use a classic "
            "session (no .remote(...), SPARK_REMOTE unset) in the driver."
        )


def logical_join(plain: DataFrame) -> LogicalJoin | None:
    """The join at the top of what `DataFrame.join` gave; None if there is none, or none with a condition."""
    root = _plan(plain)
    join = root if name_of(root) == "Join" else root.children().head()
    if name_of(join) != "Join" or join.condition().isEmpty():
        return None
    spark, condition = plain.sparkSession, join.condition().get()
    left, right = join.left(), join.right()
    return LogicalJoin(
        how=str(join.joinType().sql()),
        left=_of_rows(spark, left),
        right=_of_rows(spark, right),
        keys=tuple(_key_pairs(spark, condition, left.outputSet(), right.outputSet())),
        condition=_column(spark, condition),
        output=tuple(_column(spark, attribute) for attribute in items(join.output())),
        repeatable=bool(condition.deterministic()) and _repeats(left) and _repeats(right),
        root=root,
    )


def same_content(df: DataFrame) -> bool:
    """Whether a retried task sees rows of the same content, whatever their order; `RepeatableRows.scala` says
    the same of a shuffle in the jar. Not where values may hang on the order in which rows come, as a sum of
    floats does, nor behind code of the user's over partitions or groups. What is unknown is refused."""
    return bool(_plan(df).deterministic()) and _steady(_plan(df))


def _steady(plan: Any) -> bool:
    name = name_of(plan)
    if not all(_steady(query) for query in items(plan.subqueries())):
        return False
    if name == "LogicalRelation":
        return name_of(plan.relation()) == "HadoopFsRelation"
    return name in _STEADY and all(_steady(child) for child in items(plan.children()))


def _repeats(plan: Any) -> bool:
    """Whether a second reading gives the same rows: nothing random, and no choice of rows by the order in
    which they come, in subqueries neither."""
    return bool(plan.deterministic()) and not _BY_ORDER.search(str(plan.treeString()))


def _key_pairs(spark: SparkSession, condition: Any, left: Any, right: Any) -> Iterator[KeyPair]:
    kind = name_of(condition)
    if kind == "And":
        yield from _key_pairs(spark, condition.left(), left, right)
        yield from _key_pairs(spark, condition.right(), left, right)
    elif kind in ("EqualTo", "EqualNullSafe") and condition.deterministic():
        sides = condition.left(), condition.right()
        for one, other in (sides, sides[::-1]):
            if _only_of(one, left) and _only_of(other, right):
                yield KeyPair(_column(spark, one), _column(spark, other), kind == "EqualNullSafe")
                return


def _only_of(expression: Any, side: Any) -> bool:
    references = expression.references()
    return bool(references.nonEmpty() and references.subsetOf(side))


def grouping_columns(counted: DataFrame) -> list[Column]:
    """The keys of a `groupBy(...)` as columns under their names, from what its `count()` gives."""
    node = _plan(counted)
    if name_of(node) != "Aggregate" or name_of(node.child()) == "Expand":
        raise SettingError(
            "this is no plain groupBy; rollup, cube and pivot have no keys to split. Use groupBy."
        )
    keys = items(node.groupingExpressions())
    named = [_column(counted.sparkSession, key) for key in keys]
    names = counted.columns[:-1] if len(counted.columns) > len(keys) else [str(key.sql()) for key in keys]
    return [column.alias(name) for column, name in zip(named, names, strict=True)]


def columns_in(df: DataFrame, expression: Column) -> list[Column]:
    """The columns of `df` that a resolved expression reads."""
    spark = df.sparkSession
    read = _utils(spark).expression(expression._jc).references()
    return [_column(spark, a) for a in items(_plan(df).output()) if read.contains(a)]


@dataclass(frozen=True)
class Call:
    """A column that is a bare call of a function."""

    name: str
    arguments: tuple[Column, ...]
    distinct: bool


def call_of(column: Column) -> Call | None:
    """The call that a column is; None if it is anything else, such as a sum of two calls or SQL text."""
    node = _node(column)
    if name_of(node) != "UnresolvedFunction":
        return None
    arguments = tuple(_of_node(argument) for argument in items(node.arguments()))
    return Call(str(node.functionName()).lower(), arguments, bool(node.isDistinct()))


def literal_of(column: Column) -> Any:
    """The value of a column that is a literal; None if it is none."""
    node = _node(column)
    return node.value() if name_of(node) == "Literal" else None


def is_named(column: Column) -> bool:
    """Whether a column is one of a DataFrame's by its name, and nothing is computed; a field of one is."""
    node = _node(column)
    return name_of(node) == "UnresolvedAttribute" and node.nameParts().size() == 1


def sorted_by(column: Column) -> tuple[Column, bool, bool]:
    """What a column sorts by, whether descending, and whether nulls come last."""
    node = _node(column)
    if name_of(node) != "SortOrder":
        return column, False, False
    descending = str(node.sortDirection().sql()) == "DESC"
    return _of_node(node.child()), descending, str(node.nullOrdering().sql()) == "NULLS LAST"


def deterministic(df: DataFrame) -> bool:
    """Whether nothing in the plan is random or depends on where a row is read."""
    return bool(_plan(df).deterministic())


def held(df: DataFrame) -> DataFrame:
    """The rows of `df` as they are now, in a plan of their own that computes nothing again. For few rows."""
    execution, spark = df._jdf.queryExecution(), df.sparkSession
    rows = list(execution.executedPlan().executeCollect())
    relation: Any = _jvm(spark).org.apache.spark.sql.catalyst.plans.logical.LocalRelation
    none: Any = getattr(_jvm(spark).scala, "None$")
    plan = relation(execution.analyzed().output(), _seq(spark, rows), False, getattr(none, "MODULE$"))
    return _of_rows(spark, plan)


def output_columns(df: DataFrame) -> list[Column]:
    """Every column of `df`, also where two have one name."""
    return [_column(df.sparkSession, attribute) for attribute in items(_plan(df).output())]


def estimated_rows(df: DataFrame) -> float:
    """How many rows Spark expects, which may be wildly wrong; infinite if it has no idea."""
    stats = df._jdf.queryExecution().optimizedPlan().stats()
    if stats.rowCount().isDefined():
        return float(str(stats.rowCount().get()))
    total_bytes = float(str(stats.sizeInBytes()))
    return total_bytes / row_bytes(df) if total_bytes < 2**62 else float("inf")


def row_bytes(df: DataFrame) -> int:
    """The size that Spark expects of a row of these types."""
    return 8 + int(df._jdf.schema().defaultSize())


def key_hash(spark: SparkSession, columns: list[Column]) -> Column:
    """A 64-bit hash that is equal for values that a join takes for equal: -0.0 and 0.0, and strings that
    their collation takes for equal."""
    expressions: Any = _jvm(spark).org.apache.spark.sql.catalyst.expressions
    children = [_utils(spark).expression(column._jc) for column in columns]
    return _column(spark, expressions.CollationAwareXxHash64(_seq(spark, children), 42))


def physical_plan(df: DataFrame) -> Any:
    """The physical plan as it is before any of it has run."""
    plan = df._jdf.queryExecution().executedPlan()
    return plan.initialPlan() if name_of(plan) == "AdaptiveSparkPlanExec" else plan


def items(seq: Any) -> list[Any]:
    return [seq.apply(i) for i in range(seq.size())]


def name_of(node: Any) -> str:
    return str(node.getClass().getSimpleName()).rstrip("$")


def _plan(df: DataFrame) -> Any:
    return df._jdf.queryExecution().analyzed()


def _of_rows(spark: SparkSession, plan: Any) -> DataFrame:
    return DataFrame(
        _jvm(spark).org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark
    )


def _column(spark: SparkSession, expression: Any) -> Column:
    return Column(_utils(spark).column(expression))


def _node(column: Column) -> Any:
    java: Any = column._jc
    return java.node()


def _of_node(node: Any) -> Column:
    java: Any = SparkContext._active_spark_context
    return Column(java._jvm.org.apache.spark.sql.Column(node))


def _utils(spark: SparkSession) -> Any:
    return _jvm(spark).org.apache.spark.sql.classic.ExpressionUtils


def _seq(spark: SparkSession, values: list[Any]) -> Any:
    return _jvm(spark).PythonUtils.toSeq(values)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm
