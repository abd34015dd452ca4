"""The types of an aggregate, from what the user wrote to what Spark and Arrow expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from skewless.errors import SettingError
from skewless.operators.aggregates.aggregate import Aggregate
from skewless.operators.aggregates.merger import Merger


def struct_of(schema: StructType | str, name: str) -> StructType:
    """The columns of a schema, all of which may be null."""
    try:
        struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        raise SettingError(f"{name} is {schema!r}, which Spark cannot read: {error}.") from error
    if not isinstance(struct, StructType) or not struct.fields:
        raise SettingError(f"{name} is {schema!r}; it takes columns, such as 'n long'.")
    return StructType([StructField(field.name, field.dataType) for field in struct.fields])


def to_arrow(schema: StructType) -> Any:
    """As Spark checks what a task gives: timestamps in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def merger_of(chosen: Aggregate) -> Merger:
    partials = struct_of(chosen.schema, "schema")
    results = partials if chosen.result_schema is None else struct_of(chosen.result_schema, "result_schema")
    return Merger(chosen, to_arrow(partials), to_arrow(results))


def schemas(
    df: DataFrame, names: Sequence[str], chosen: Aggregate
) -> tuple[StructType, StructType, StructType]:
    """The types of the keys, of partials and of results."""
    fields = {field.name: field for field in df.schema.fields}
    keys = StructType([StructField(name, fields[name].dataType) for name in names])
    partials = struct_of(chosen.schema, "schema")
    results = partials if chosen.result_schema is None else struct_of(chosen.result_schema, "result_schema")
    same = sorted(set(names) & set(results.names))
    if same:
        raise SettingError(
            f"the results have columns {same}, which are keys; the keys come out by themselves. Leave them "
            "out of the schema and of what the functions give."
        )
    return keys, partials, results
