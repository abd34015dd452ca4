"""An aggregate as a value: the functions that make, merge and finish its partials, and their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

Frames = Callable[[Any], Any]


@dataclass(frozen=True)
class Aggregate:
    """What `skewless.aggregate` does with the rows of a key.

    partial        some rows of one key -> their partial, a table of the type `schema`
    merge          the rows of several partials of one key, one below the other -> one partial
    result         the partial of all rows -> what comes out, of the type `result_schema`; without it the
                   partial comes out itself

    The functions take and give `pyarrow.Table`s, without the key columns in what they give. A partial whose
    rows must not be mixed with those of another is one row of lists, structs or bytes. It must not matter how
    the rows are cut, nor in which order partials are merged: `skewless.check_merge` looks for a cut and an
    order where it does.
    """

    partial: Frames
    merge: Frames
    schema: StructType | str
    result: Frames | None = None
    result_schema: StructType | str | None = None
