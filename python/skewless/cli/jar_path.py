"""`skewless jar-path`."""

import click

from skewless.cli.terminal import plain_errors
from skewless.spark.jar import jar_path, spark_lines


@click.command("jar-path")
@click.option(
    "--spark", type=click.Choice(list(spark_lines())), help="For this line; else for the Spark here."
)
@plain_errors
def jar_path_command(spark: str | None) -> None:
    """Prints where the jar is, for spark-submit --jars."""
    click.echo(str(jar_path(spark)))
