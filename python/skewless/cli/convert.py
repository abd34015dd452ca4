"""`skewless convert`."""

from __future__ import annotations

import time

import click

from skewless.cli.terminal import needs_spark, plain_errors
from skewless.wording import amount

FILE_SINK = (
    "Does the query write files with Spark's own sink (format parquet, json, csv, ... and start(DIR))? Then "
    "give --file-sink DIR: without it the sink's log, DIR/_spark_metadata, would lack this batch, and DIR "
    "could not be read any more. If it does not, give --no-file-sink. The checkpoint does not say which sink "
    "it has."
)


@click.command("convert")
@click.argument("location", metavar="CHECKPOINT")
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and write nothing.")
@click.option("--drop-old", is_flag=True, help="Remove the old state that a finished conversion has left.")
@click.option(
    "--checkpoint-format",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="The spark.sql.streaming.stateStore.checkpointFormatVersion with which the query will run.",
)
@click.option(
    "--file-sink",
    metavar="DIR",
    help="The folder that the query writes with Spark's own file sink: start(DIR). An empty entry for the "
    "batch of the conversion is put into its log, DIR/_spark_metadata.",
)
@click.option("--no-file-sink", is_flag=True, help="The query does not write with Spark's own file sink.")
@plain_errors
@needs_spark
def convert_command(
    location: str,
    dry_run: bool,
    drop_old: bool,
    checkpoint_format: int,
    file_sink: str | None,
    no_file_sink: bool,
) -> None:
    """Make the HDFS-backed CHECKPOINT of a stopped query one of Spark's RocksDB provider, which Skewless can
    adopt. Broken off anywhere, it can be run again.

    A query that writes with Spark's file sink needs --file-sink: the sink's log must have every batch, and
    the conversion is one."""
    if drop_old and (dry_run or file_sink):
        raise click.UsageError("--drop-old goes with neither --dry-run nor --file-sink.")
    if not (dry_run or drop_old) and (file_sink is not None) == no_file_sink:
        raise click.UsageError(FILE_SINK)
    from skewless.spark.stopped import Conversion, gateway

    with gateway("skewless convert") as jvm:
        if drop_old:
            click.echo(jvm.drop_old(location))
            return
        conversion = Conversion.of(jvm, location, checkpoint_format, file_sink)
        click.echo(f"{amount(conversion.state_bytes)} of state, to be copied in batch {conversion.batch}")
        if file_sink is not None:
            click.echo(f"with an entry for it in {file_sink}/_spark_metadata")
        for store, name in enumerate(conversion.stores):
            if dry_run:
                click.echo(f"  {name}")
            else:
                started = time.monotonic()
                rows = conversion.copy(store)
                click.echo(f"  {name}: {rows:,} rows in {time.monotonic() - started:.1f} s")
        click.echo("dry run: nothing was written." if dry_run else conversion.commit())
