"""`skewless repartition`."""

from __future__ import annotations

import time

import click

from skewless.cli.terminal import needs_spark, plain_errors


@click.command("repartition")
@click.argument("location", metavar="CHECKPOINT")
@click.argument("partitions", metavar="N", type=click.IntRange(min=1))
@plain_errors
@needs_spark
def repartition_command(location: str, partitions: int) -> None:
    """Give the state in the CHECKPOINT of a stopped query N partitions: release it, and have Spark's own
    offline tool rewrite the state in a batch of its own. Broken off anywhere, run it again with the same N;
    nothing is lost.

    Its keys must be at home, as for `skewless release`. The checkpoint is plain Spark's afterwards; a start
    with spark.skewless.adopt=true puts it on Skewless again."""
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
