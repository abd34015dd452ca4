"""`skewless doctor`."""

from __future__ import annotations

import json
from typing import Any

import click

from skewless.cli.terminal import plain_errors


@click.command("doctor")
@click.option("--checkpoint", metavar="FOLDER", help="Look at a query's checkpoint too, a path or URI.")
@click.option("--session", is_flag=True, help="Start a local session as your jobs would, and look at it too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@plain_errors
def doctor_command(checkpoint: str | None, session: bool, as_json: bool) -> None:
    """Tell what is wrong with this machine's set-up and what to do: exit code 0 if nothing is, else 1."""
    from skewless.spark.doctor import doctor

    spark = _started() if session else None
    try:
        found = doctor(spark, checkpoint)
    finally:
        if spark is not None:
            spark.stop()
    click.echo(json.dumps(found.as_dict()) if as_json else str(found))
    if not found.ok:
        raise SystemExit(1)


def _started() -> Any:
    from skewless.errors import SessionError

    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise SessionError("--session needs pyspark: pip install 'skewless[spark]'.") from error
    from skewless.spark.session import configure

    builder = SparkSession.builder.appName("skewless doctor").config("spark.ui.enabled", "false")
    return configure(builder).getOrCreate()
