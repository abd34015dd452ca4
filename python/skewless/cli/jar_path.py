"""`skewless jar-path`."""

import click

from skewless.spark.jar import jar_path


@click.command("jar-path")
def jar_path_command() -> None:
    """Prints where the jar is, for spark-submit --jars."""
    click.echo(str(jar_path()))
