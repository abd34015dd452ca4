"""`skewless inspect`."""

from __future__ import annotations

import json

import click

from skewless.cli.terminal import plain_errors


@click.command("inspect")
@click.argument("location", metavar="CHECKPOINT")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@plain_errors
def inspect_command(location: str, as_json: bool) -> None:
    """Tell what Skewless keeps in a query's CHECKPOINT, a path or URI, and whether it is whole (exit code 0)
    or broken (1)."""
    from skewless.checkpoint.inspect import inspect
    from skewless.checkpoint.text import checkpoint_text

    found = inspect(location)
    click.echo(json.dumps(found.as_dict()) if as_json else checkpoint_text(found))
    if not found.whole:
        raise SystemExit(1)
