"""An aggregate of pandas functions as one of Arrow functions, by Spark's own conversions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.conversion import ArrowArrayToPandasConversion, PandasToArrowConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from skewless.errors import AggregateError
from skewless.operators.aggregates.aggregate import Aggregate, Frames
from skewless.operators.aggregates.schemas import struct_of


def with_pandas(chosen: Aggregate, df: DataFrame) -> Aggregate:
    """The same aggregate over Arrow, for the rows of `df`."""
    zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    partials = struct_of(chosen.schema, "schema")
    finished = replace(
        chosen,
        partial=_by_pandas(chosen.partial, df.schema, partials, zone, "what partial gave", local=True),
        merge=_by_pandas(chosen.merge, partials, partials, zone, "what merge gave"),
    )
    if chosen.result is None or chosen.result_schema is None:
        return finished
    results = struct_of(chosen.result_schema, "result_schema")
    return replace(finished, result=_by_pandas(chosen.result, partials, results, zone, "what result gave"))


def _by_pandas(
    function: Frames, taken: StructType, given: StructType, zone: str, what: str, local: bool = False
) -> Frames:
    """`local` if Arrow's timestamps are in the session's zone, as in the rows of Spark, and not in UTC."""

    def by_pandas(table: pa.Table) -> pa.Table:
        import pandas as pd

        if not local:  # Spark's conversion drops the zone without converting
            table = table.cast(to_arrow_schema(taken, timezone=zone))
        types = {field.name: field.dataType for field in taken.fields}
        columns = [
            ArrowArrayToPandasConversion.convert(
                column, types[name], ser_name=name, timezone=zone, struct_in_pandas="dict"
            )
            for name, column in zip(table.column_names, table.columns, strict=True)
        ]
        frame = function(pd.concat(columns, axis=1))
        return _to_arrow(frame, given, zone, what)

    return by_pandas


def _to_arrow(frame: Any, schema: StructType, zone: str, what: str) -> pa.Table:
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise AggregateError(f"{what} is a {type(frame).__name__}, and a pandas DataFrame is expected.")
    if sorted(map(str, frame.columns)) != sorted(schema.names):
        raise AggregateError(
            f"{what} has the columns {list(frame.columns)}, and schema= says {schema.names}. Give those of "
            "schema=, without the key."
        )
    try:
        batch = PandasToArrowConversion.convert(frame, schema, timezone=zone, assign_cols_by_name=True)
    except Exception as error:
        raise AggregateError(
            f"{what} does not fit schema=, which says {schema.simpleString()}: {error}"
        ) from error
    return pa.Table.from_batches([batch])
