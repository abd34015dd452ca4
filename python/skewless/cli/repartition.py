"""`skewless repartition`."""

from __future__ import annotations

import time

import click

from skewless.cli.terminal import needs_spark, plain_errors

FILE_SINK = (
    "Does the query write files with Spark's own sink (format parquet, json, csv, ... and start(DIR))? Then "
    "leave its partitions as they are: Spark's tool takes a batch that the sink's log, DIR/_spark_metadata, "
    "would lack, and DIR could not be read any more. If it does not, give --no-file-sink. The checkpoint "
    "does not say which sink it has."
)


@click.command("repartition")
@click.argument("location", metavar="CHECKPOINT")
@click.argument("partitions", metavar="N", type=click.IntRange(min=1))
@click.option("--no-file-sink", is_flag=True, help="The query does not write with Spark's own file sink.")
@plain_errors
@needs_spark
def repartition_command(location: str, partitions: int, no_file_sink: bool) -> None:
    """Give the state in the CHECKPOINT of a stopped query N partitions: release it, and have Spark's own
    offline tool rewrite the state in a batch of its own. Broken off anywhere, run it again with the same N;
    nothing is lost.

    Its keys must be at home, as for `skewless release`. The checkpoint is plain Spark's afterwards; a start
    with spark.skewless.adopt=true puts it on Skewless again."""
    if not no_file_sink:
        raise click.UsageError(FILE_SINK)
    from skewless.spark.stopped import gateway

    with gateway("skewless repartition") as jvm:
        click.echo(jvm.release_checkpoint(location))
        started = time.monotonic()
        jvm.repartition_checkpoint(location, partitions)
        click.echo(
            f"{location} has {partitions} partitions from its next start on, after "
            f"{time.monotonic() - started:.1f} s. Start the query with spark.skewless.adopt=true to have it "
            "balanced again."
        )
