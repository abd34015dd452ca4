"""`skewless conf-path`."""

import click

from skewless.cli.terminal import plain_errors
from skewless.spark.jar import conf_path


@click.command("conf-path")
@plain_errors
def conf_path_command() -> None:
    """Prints where skewless.conf is, for spark-submit --properties-file."""
    click.echo(str(conf_path()))
