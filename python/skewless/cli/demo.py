"""`skewless demo`."""

import click

from skewless.errors import SessionError


@click.command("demo")
def demo_command() -> None:
    """Levels a stream on a local cluster while it runs (about two minutes)."""
    try:
        from skewless.spark.demo import run
    except ModuleNotFoundError as error:
        raise SessionError(f"the demo needs {error.name}: pip install 'skewless[spark]'.") from error
    run(click.echo)
