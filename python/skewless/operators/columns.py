"""Keys as columns of a DataFrame, whatever characters their names have."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skewless.errors import SettingError
from skewless.operators.repartition import key_columns


def with_keys(df: DataFrame, keys: Sequence[str | Column]) -> tuple[DataFrame, list[str]]:
    """`df` with each key as a column, and the names of these; an expression becomes a column of its name."""
    columns = key_columns(tuple(keys))
    names = df.select(*columns).columns
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingError(f"the keys have the names {names}; {twice} come twice. Name each key once.")
    made = {n: c for n, c, key in zip(names, columns, keys, strict=True) if isinstance(key, Column)}
    return (df.withColumns(made) if made else df), names


def quoted(names: Sequence[str]) -> list[Column]:
    return [F.col("`" + name.replace("`", "``") + "`") for name in names]
