"""Makes the evidence pages in docs/evidence: each paper's headline, run again.

    python bench/evidence.py [--page pkg --page fish ...] [--data DIR]

`--data` names a folder with real streams (parquet files with a column `key`); without it the generated ones
remain. What the pages compare are ratios within one run; times depend on the machine, balance and memory do
not.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent))

from pages import advise, aj_stream, albic, fish, forecast, forecast_long, mixed, mixed_sweeps, pkg
from pages.page import Build, Page

PAGES: dict[str, Build] = {
    "pkg": pkg.build,
    "fish": fish.build,
    "mixed": mixed.build,
    "mixed-sweeps": mixed_sweeps.build,
    "albic": albic.build,
    "advise": advise.build,
    "aj-stream": aj_stream.build,
    "forecast": forecast.build,
    "forecast-long": forecast_long.build,
}


@click.command()
@click.option(
    "--page", "names", multiple=True, type=click.Choice(list(PAGES)), help="Only this page; again for more."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with real streams.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path(__file__).parent.parent / "docs" / "evidence"
)
def main(names: tuple[str, ...], data: Path | None, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    for name in names or PAGES:
        start = time.perf_counter()
        page = Page(name, out, f"python bench/evidence.py --page {name}" + (" --data DIR" if data else ""))
        PAGES[name](page, data)
        path = page.write()
        seconds = time.perf_counter() - start
        click.echo(f"{path.name}: {sum(page.verdicts)} of {len(page.verdicts)} claims agree, {seconds:.0f} s")
    click.echo(
        f"all: {time.perf_counter() - begin:.0f} s by the clock, {time.process_time():.0f} s of processor "
        "time"
    )


if __name__ == "__main__":
    main()
