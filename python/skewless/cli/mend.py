"""`skewless mend`."""

from __future__ import annotations

import click

from skewless.cli.terminal import needs_spark, plain_errors


@click.command("mend")
@click.argument("location", metavar="CHECKPOINT")
@plain_errors
@needs_spark
def mend_command(location: str) -> None:
    """Take back what an offline tool has left half-way in the CHECKPOINT of a stopped query: a repartition
    that Spark has refused, or a conversion that did not finish."""
    from skewless.spark.stopped import gateway

    with gateway("skewless mend") as jvm:
        click.echo(jvm.mend_checkpoint(location))
