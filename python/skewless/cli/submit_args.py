"""`skewless submit-args`."""

from __future__ import annotations

import shlex

import click

from skewless.cli.terminal import plain_errors
from skewless.spark.jar import jar_path
from skewless.spark.submitted import PROVIDER, PROVIDER_KEY, flags_of, kept_out, settings_of, submit_words


@click.command(
    "submit-args", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("own", metavar="[YOUR FLAGS]", nargs=-1, type=click.UNPROCESSED)
@plain_errors
def submit_args_command(own: tuple[str, ...]) -> None:
    """Prints the flags that switch Skewless on in a spark-submit command of your own.

    What spark-defaults.conf says stays: plugins, extensions and jars are appended to. If your command has
    --jars, --conf or a properties file of its own, give them here, because Spark takes the last --jars only:

    \b
        spark-submit $(skewless submit-args) job.py
        spark-submit $(skewless submit-args --master yarn --jars delta.jar) job.py
    """
    flags = flags_of(own)
    provider = settings_of(flags).get(PROVIDER_KEY) or PROVIDER
    if provider != PROVIDER:
        click.echo(f"skewless: {kept_out(provider, 'your settings')}", err=True)
    click.echo(shlex.join(submit_words(flags, str(jar_path()))))
