"""`skewless release`."""

from __future__ import annotations

import click

from skewless.cli.terminal import needs_spark, plain_errors


@click.command("release")
@click.argument("location", metavar="CHECKPOINT")
@click.option("--undo", is_flag=True, help="Take a release back, as long as the query has not started since.")
@plain_errors
@needs_spark
def release_command(location: str, undo: bool) -> None:
    """Give the CHECKPOINT of a stopped query back to plain Spark, which then goes on without the jar. Its
    keys must be at home: a table that still moves keys is refused, with what to do."""
    from skewless.spark.stopped import gateway

    with gateway("skewless release") as jvm:
        click.echo(jvm.undo_release(location) if undo else jvm.release_checkpoint(location))
