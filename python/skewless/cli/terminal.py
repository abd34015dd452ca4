"""What the commands have in common: errors as one line, and a bar while something takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from skewless.errors import SessionError, SkewlessError


def plain_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Our errors are for people: a line, not a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except SkewlessError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


def needs_spark(command: Callable[..., None]) -> Callable[..., None]:
    """Without pyspark, a line that says how to get it."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except ModuleNotFoundError as error:
            raise SessionError(f"this needs {error.name}: pip install 'skewless[spark]'.") from error

    return wrapped


@contextmanager
def progress_bar(tuples: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=max(1, tuples), label="tuples", file=sys.stderr) as bar:
        yield bar.update
