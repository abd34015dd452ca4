"""`skewless advise`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from skewless.cli.terminal import plain_errors, progress_bar
from skewless.errors import SettingError


@click.command("advise")
@click.argument("source", metavar="FILE|TABLE")
@click.option("--key", "column", required=True, help="The column that holds the key.")
@click.option("--workers", required=True, type=int, help="Shuffle partitions, or task slots if fewer.")
@click.option(
    "--operator",
    type=click.Choice(["atomic", "mergeable", "join"]),
    default="atomic",
    show_default=True,
    help="atomic: keeps one state per key, so keys are moved. mergeable: a stateless step behind "
    "skewless.repartition whose partial results are merged later, so keys can be split too. join: a "
    "stream-stream join; give the rows of the side that may be split.",
)
@click.option("--sources", default=8, show_default=True, help="Map tasks.")
@click.option(
    "--forecast",
    is_flag=True,
    help="Say as well how far ahead the hot keys can be foreseen, and by what; takes a minute or so where "
    "the extra `forecast` is installed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@plain_errors
def advise_command(
    source: str, column: str, workers: int, *, operator: str, sources: int, forecast: bool, as_json: bool
) -> None:
    """Replay the keys of a parquet FILE (or a folder of them), or of a TABLE that Spark knows, through every
    allowed scheme, recommend one that Spark can be told to use, and say how."""
    from skewless.simulate import advise, in_memory, outlook, terminal
    from skewless.simulate.streams.parquet import ParquetStream

    is_file = Path(source).exists() or source.endswith(".parquet")
    stream = ParquetStream(Path(source), column) if is_file else _table(source, column)
    with progress_bar(stream.tuples * advise.runs_of(operator)) as progress:
        advice = advise.advise(stream, workers, operator, sources, progress)
    ahead = outlook.outlook(in_memory(stream), workers) if forecast else None
    if as_json:
        more = {} if ahead is None else {"forecast": asdict(ahead)}
        click.echo(json.dumps({**advice.as_dict(), **more}))
        return
    click.echo(terminal.advice_text(advice))
    if ahead is not None:
        click.echo(terminal.outlook_text(ahead))


def _table(name: str, column: str) -> Any:
    """The first million keys of a table, through a Spark session with this machine's own Spark settings."""
    try:
        from pyspark.errors import AnalysisException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise SettingError(
            f"{name} is not a file, and reading a table needs Spark: pip install 'skewless[spark]'."
        ) from error
    from skewless.operators.advise import key_stream
    from skewless.spark.session import configure

    spark = configure(SparkSession.builder.config("spark.ui.enabled", "false")).getOrCreate()
    try:
        return key_stream(spark.table(name), column, label=name)
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise SettingError(f"{name} is neither a file nor a table that Spark can read: {first}") from error
    finally:
        spark.stop()
