"""The command `skewless`."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

import click

from skewless.commands import advise_command, inspect_command, simulate_command
from skewless.errors import SessionError, SkewlessError
from skewless.jar import jar_path


def _version() -> str:
    try:
        return version("skewless")
    except PackageNotFoundError:
        return "unknown"


@click.group()
@click.version_option(_version(), prog_name="skewless")
def cli() -> None:
    """Skewless keeps keyed work in Spark level while hot keys drift."""


@cli.command("jar-path")
def jar_path_command() -> None:
    """Prints where the jar is, for spark-submit --jars."""
    click.echo(str(jar_path()))


@cli.command()
def demo() -> None:
    """Levels a stream on a local cluster while it runs (about two minutes)."""
    try:
        from skewless.demo import run
    except ModuleNotFoundError as error:
        raise SessionError(f"the demo needs {error.name}: pip install 'skewless[spark]'.") from error
    run(click.echo)


cli.add_command(simulate_command)
cli.add_command(advise_command)
cli.add_command(inspect_command)


def main() -> None:
    """The entry point: an error of ours is one line on stderr and exit code 1."""
    try:
        cli()
    except SkewlessError as error:
        click.echo(f"skewless: {error}", err=True)
        sys.exit(1)
