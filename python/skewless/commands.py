"""The commands `skewless simulate`, `skewless advise` and `skewless inspect`; the command line mounts them.

Apart from what they call so that the rest can be used without a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click

from skewless.errors import SettingError, SkewlessError

SCHEMES = ("hash", "shuffle", "pkg", "d-choices", "w-choices", "fish", "mixed")
GENERATORS = ("zipf", "drifting", "fluctuating", "bursts", "ln1", "ln2")


def plain_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Our errors are for people: a line, not a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except SkewlessError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


@click.command("simulate")
@click.option("--data", type=click.Path(path_type=Path), help="A parquet file with the keys; else a generator makes them.")
@click.option("--key", "column", help="The column of the file that holds the key.")
@click.option("--generator", type=click.Choice(GENERATORS), default="zipf", show_default=True, help="The law of the keys.")
@click.option("--tuples", type=int, help="How many tuples to make, or at most to read.  [default: 1,000,000, or the whole file]")
@click.option("--keys", default=100_000, show_default=True, help="How many keys the generator knows.")
@click.option("--z", default=1.0, show_default=True, help="Zipf's exponent.")
@click.option("--f", default=1.0, show_default=True, help="The fluctuation rate of the generator of that name.")
@click.option("--scheme", "schemes", multiple=True, help=f"name[:option=value,...], repeatable.  [default: {' '.join(SCHEMES)}]")
@click.option("--workers", default=16, show_default=True)
@click.option("--sources", default=5, show_default=True)
@click.option("--speeds", help="Relative speeds of the workers, repeated as needed: 1,2 makes every other one twice as fast.")
@click.option("--utilisation", default=0.9, show_default=True, help="Arrivals as a share of what the workers can do.")
@click.option("--batch", default=100_000, show_default=True, help="Tuples in a micro-batch.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the imbalance over time into this file (svg, png, pdf).")
@plain_errors
def simulate_command(schemes: tuple[str, ...], as_json: bool, plot: Path | None, batch: int, **options: Any) -> None:
    """Run keys through routing schemes and compare balance, time and memory."""
    from skewless.simulate import catalogue, plots, simulator, terminal

    specs = schemes or SCHEMES
    cluster = _cluster(options)
    for spec in specs:
        catalogue.make(spec, cluster)  # complain before the work starts
    stream = _stream(options)
    with _progress(stream.tuples * len(specs)) as progress:
        results = simulator.compare(stream, specs, cluster, batch=batch, progress=progress)
    click.echo(json.dumps(terminal.as_dicts(results)) if as_json else terminal.results_text(results))
    if plot is not None:
        plots.imbalance_over_time(plot, results)
        click.echo(f"plot: {plot}", err=True)


@click.command("advise")
@click.argument("source", metavar="FILE|TABLE")
@click.option("--key", "column", required=True, help="The column that holds the key.")
@click.option("--workers", required=True, type=int, help="Shuffle partitions, or task slots if fewer.")
@click.option("--operator", type=click.Choice(["atomic", "mergeable"]), default="atomic", show_default=True,
              help="Whether the operator keeps one state a key, or can merge partial ones.")  # fmt: skip
@click.option("--sources", default=8, show_default=True, help="Map tasks.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@plain_errors
def advise_command(source: str, column: str, workers: int, *, operator: str, sources: int, as_json: bool) -> None:
    """Replay the keys of a parquet FILE, or of a TABLE that Spark knows, through every allowed scheme and recommend one."""
    from skewless.simulate import advise, terminal
    from skewless.simulate.parquet import ParquetStream

    is_file = Path(source).exists() or source.endswith(".parquet")
    stream = ParquetStream(Path(source), column) if is_file else _table(source, column)
    with _progress(stream.tuples * advise.runs_of(operator)) as progress:
        advice = advise.advise(stream, workers, operator, sources, progress)
    click.echo(json.dumps(advice.as_dict()) if as_json else terminal.advice_text(advice))


@click.command("inspect")
@click.argument("location", metavar="CHECKPOINT")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@plain_errors
def inspect_command(location: str, as_json: bool) -> None:
    """Tell what Skewless keeps in a query's CHECKPOINT, a path or URI, and whether it is whole (exit code 0) or broken (1)."""
    from skewless import checkpoint, checkpoint_text

    found = checkpoint.inspect(location)
    click.echo(json.dumps(found.as_dict()) if as_json else checkpoint_text.checkpoint_text(found))
    if not found.whole:
        raise SystemExit(1)


def _table(name: str, column: str) -> Any:
    """The first million keys of a table, through a Spark session with this machine's own Spark settings."""
    try:
        from pyspark.errors import AnalysisException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise SettingError(f"{name} is not a file, and reading a table needs Spark: pip install 'skewless[spark]'.") from error
    from skewless.operators.advise import key_stream
    from skewless.session import configure

    spark = configure(SparkSession.builder.config("spark.ui.enabled", "false")).getOrCreate()
    try:
        return key_stream(spark.table(name), column, label=name)
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise SettingError(f"{name} is neither a file nor a table that Spark can read: {first}") from error
    finally:
        spark.stop()


def _cluster(options: dict[str, Any]) -> Any:
    from skewless.simulate.cluster import Cluster

    workers, speeds = options["workers"], None
    if options["speeds"]:
        try:
            given = [float(speed) for speed in options["speeds"].split(",")]
        except ValueError as error:
            raise SettingError(f"speeds {options['speeds']!r} are not numbers. Give 1,2 for example.") from error
        speeds = [given[w % len(given)] for w in range(max(0, workers))]
    return Cluster(workers, options["sources"], speeds, options["utilisation"], seed=options["seed"])


def _stream(options: dict[str, Any]) -> Any:
    from skewless.simulate import generators
    from skewless.simulate.parquet import ParquetStream
    from skewless.simulate.streams import first_tuples

    if options["data"] is not None:
        if not options["column"]:
            raise SettingError("the file's key column is not given. Add --key COLUMN.")
        stream = ParquetStream(options["data"], options["column"])
        return stream if options["tuples"] is None else first_tuples(stream, options["tuples"])
    tuples = 1_000_000 if options["tuples"] is None else options["tuples"]
    keys, z, seed = options["keys"], options["z"], options["seed"]
    make: dict[str, Callable[[], Any]] = {
        "zipf": lambda: generators.zipf(tuples, keys, z, seed),
        "drifting": lambda: generators.drifting_zipf(tuples, keys=keys, z=z, round_tuples=max(1, tuples // 2), seed=seed),
        "fluctuating": lambda: generators.fluctuating(
            tuples, keys=keys, z=z, f=options["f"], interval=max(1, tuples // 10), workers=options["workers"], seed=seed
        ),
        "bursts": lambda: generators.bursts(tuples, keys=keys, z=z, every=max(1, tuples // 50), seed=seed),
        "ln1": lambda: generators.lognormal_1(tuples, seed),
        "ln2": lambda: generators.lognormal_2(tuples, seed),
    }
    return make[options["generator"]]()


@contextmanager
def _progress(tuples: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing in a pipe."""
    import sys

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=max(1, tuples), label="tuples", file=sys.stderr) as bar:
        yield bar.update
