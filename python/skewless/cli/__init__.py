"""The command `skewless`; each of its commands is a file of this folder."""

from __future__ import annotations

import sys

import click

import skewless
from skewless.cli.advise import advise_command
from skewless.cli.conf_path import conf_path_command
from skewless.cli.convert import convert_command
from skewless.cli.demo import demo_command
from skewless.cli.doctor import doctor_command
from skewless.cli.inspect import inspect_command
from skewless.cli.jar_path import jar_path_command
from skewless.cli.mend import mend_command
from skewless.cli.release import release_command
from skewless.cli.repartition import repartition_command
from skewless.cli.simulate import simulate_command
from skewless.cli.submit_args import submit_args_command
from skewless.errors import SkewlessError


@click.group()
@click.version_option(skewless.__version__, prog_name="skewless")
def cli() -> None:
    """Skewless keeps keyed work in Spark level while hot keys drift."""


for _command in (
    demo_command,
    doctor_command,
    simulate_command,
    advise_command,
    inspect_command,
    convert_command,
    release_command,
    mend_command,
    repartition_command,
    submit_args_command,
    jar_path_command,
    conf_path_command,
):
    cli.add_command(_command)


def main() -> None:
    """The entry point: an error of ours is one line on stderr and exit code 1."""
    try:
        cli()
    except SkewlessError as error:
        click.echo(f"skewless: {error}", err=True)
        sys.exit(1)
