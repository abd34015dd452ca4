"""The command `skewless`; each of its commands is a file of this folder."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

import click

from skewless.cli.advise import advise_command
from skewless.cli.demo import demo_command
from skewless.cli.inspect import inspect_command
from skewless.cli.jar_path import jar_path_command
from skewless.cli.simulate import simulate_command
from skewless.errors import SkewlessError


def _version() -> str:
    try:
        return version("skewless")
    except PackageNotFoundError:
        return "unknown"


@click.group()
@click.version_option(_version(), prog_name="skewless")
def cli() -> None:
    """Skewless keeps keyed work in Spark level while hot keys drift."""


for _command in (demo_command, simulate_command, advise_command, inspect_command, jar_path_command):
    cli.add_command(_command)


def main() -> None:
    """The entry point: an error of ours is one line on stderr and exit code 1."""
    try:
        cli()
    except SkewlessError as error:
        click.echo(f"skewless: {error}", err=True)
        sys.exit(1)
