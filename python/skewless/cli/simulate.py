"""`skewless simulate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from skewless.cli.terminal import plain_errors, progress_bar
from skewless.errors import SettingError

SCHEMES = ("hash", "shuffle", "pkg", "d-choices", "w-choices", "fish", "mixed")
GENERATORS = ("zipf", "drifting", "fluctuating", "bursts", "ln1", "ln2")


@click.command("simulate")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="A parquet file with the keys, or a folder of them; else a generator makes them.",
)
@click.option("--key", "column", help="The column of --data that holds the key.")
@click.option(
    "--generator",
    type=click.Choice(GENERATORS),
    default="zipf",
    show_default=True,
    help="The law of the keys.",
)
@click.option(
    "--tuples",
    type=int,
    help="How many tuples to make, or at most to read.  [default: 1,000,000, or the whole file]",
)
@click.option("--keys", default=100_000, show_default=True, help="How many keys the generator knows.")
@click.option("--z", default=1.0, show_default=True, help="Zipf's exponent.")
@click.option(
    "--f", default=1.0, show_default=True, help="The fluctuation rate of the generator of that name."
)
@click.option(
    "--scheme",
    "schemes",
    multiple=True,
    help=f"name[:option=value,...], repeatable.  [default: {' '.join(SCHEMES)}]",
)
@click.option("--workers", default=16, show_default=True)
@click.option("--sources", default=5, show_default=True)
@click.option(
    "--speeds",
    help="Relative speeds of the workers, repeated as needed: 1,2 makes every other one twice as fast.",
)
@click.option(
    "--utilisation", default=0.9, show_default=True, help="Arrivals as a share of what the workers can do."
)
@click.option("--batch", default=100_000, show_default=True,
              help="Tuples in a micro-batch; a table policy plans after each.")  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="Draw the imbalance over time into this file (svg, png, pdf).",
)
@plain_errors
def simulate_command(
    schemes: tuple[str, ...], as_json: bool, plot: Path | None, batch: int, **options: Any
) -> None:
    """Run keys through routing schemes and compare balance, time and memory."""
    from skewless.simulate import catalogue, plots, simulator, terminal

    specs = schemes or SCHEMES
    cluster = _cluster(options)
    for spec in specs:  # complain before the work starts
        catalogue.make(spec, cluster, max(1, batch))
    if plot is not None:
        plots.check_path(plot)
    stream = _stream(options)
    with progress_bar(stream.tuples * len(specs)) as progress:
        results = simulator.compare(stream, specs, cluster, batch=batch, progress=progress)
    click.echo(json.dumps(terminal.as_dicts(results)) if as_json else terminal.results_text(results))
    if plot is not None:
        plots.imbalance_over_time(plot, results)
        click.echo(f"plot: {plot}", err=True)


def _cluster(options: dict[str, Any]) -> Any:
    from skewless.simulate.cluster import Cluster

    workers, speeds = options["workers"], None
    if options["speeds"]:
        try:
            given = [float(speed) for speed in options["speeds"].split(",")]
        except ValueError as error:
            raise SettingError(
                f"speeds {options['speeds']!r} are not numbers. Give 1,2 for example."
            ) from error
        speeds = [given[w % len(given)] for w in range(max(0, workers))]
    return Cluster(workers, options["sources"], speeds, options["utilisation"], seed=options["seed"])


def _stream(options: dict[str, Any]) -> Any:
    from skewless.simulate.streams import generators
    from skewless.simulate.streams.parquet import ParquetStream
    from skewless.simulate.streams.stream import first_tuples

    if options["data"] is None and options["column"]:
        raise SettingError(
            f"--key {options['column']} names a column, and no file is given. Add --data FILE, or leave "
            "--key out to have a generator make the keys."
        )
    if options["data"] is not None:
        if not options["column"]:
            raise SettingError("the file's key column is not given. Add --key COLUMN.")
        stream = ParquetStream(options["data"], options["column"])
        return stream if options["tuples"] is None else first_tuples(stream, options["tuples"])
    tuples = 1_000_000 if options["tuples"] is None else options["tuples"]
    keys, z, seed = options["keys"], options["z"], options["seed"]
    make: dict[str, Callable[[], Any]] = {
        "zipf": lambda: generators.zipf(tuples, keys, z, seed),
        "drifting": lambda: generators.drifting_zipf(
            tuples, keys=keys, z=z, round_tuples=max(1, tuples // 2), seed=seed
        ),
        "fluctuating": lambda: generators.fluctuating(
            tuples,
            keys=keys,
            z=z,
            f=options["f"],
            interval=max(1, tuples // 10),
            workers=options["workers"],
            seed=seed,
        ),
        "bursts": lambda: generators.bursts(tuples, keys=keys, z=z, every=max(1, tuples // 50), seed=seed),
        "ln1": lambda: generators.lognormal_1(tuples, seed),
        "ln2": lambda: generators.lognormal_2(tuples, seed),
    }
    return make[options["generator"]]()
