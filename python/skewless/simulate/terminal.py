"""Results as text: a table for people, plain objects for machines.

Separate from the commands so that the evidence and the command line print the same columns. Uses rich where
it is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from skewless.simulate.advise import Advice
from skewless.simulate.outlook import Outlook
from skewless.simulate.simulator import Result
from skewless.wording import shortened

COLUMNS = (
    "scheme",
    "imbalance",
    "max/mean",
    "batches",
    "time",
    "memory",
    "p50 ms",
    "p99 ms",
    "moved",
    "entries",
)


def rows(results: Sequence[Result]) -> list[list[str]]:
    """One row a result; time is relative to shuffle grouping where it was run, memory to key grouping."""
    shuffled = next((result.execution_seconds for result in results if result.scheme == "shuffle"), None)
    return [_row(result, shuffled) for result in results]


def _row(result: Result, shuffled: float | None) -> list[str]:
    time = f"{result.execution_seconds / shuffled:.2f}x" if shuffled else f"{result.execution_seconds:.4g} s"
    moved = result.costs.moved_state / result.tuples if result.tuples else 0.0
    return [
        result.scheme,
        f"{result.imbalance_fraction:.1e}",
        f"{result.max_over_mean:.3f}",
        f"{result.batch_stretch:.3f}x",
        time,
        f"{result.memory_ratio:.2f}x",
        f"{1000 * result.latency_p50:.3g}",
        f"{1000 * result.latency_p99:.3g}",
        f"{moved:.1%}" if moved else "-",
        str(result.costs.table_entries or "-"),
    ]


def table(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table as text."""
    try:
        return _rich(title, columns, cells)
    except ImportError:
        widths = [max(len(row[i]) for row in (columns, *cells)) for i in range(len(columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in (columns, *cells)
        ]
        return "\n".join([title, *lines])


def _rich(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        grid.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in cells:
        grid.add_row(*row)
    console = Console(width=160)
    with console.capture() as capture:
        console.print(grid)
    return capture.get().rstrip("\n")


def results_text(results: Sequence[Result]) -> str:
    """A comparison, as `skewless simulate` prints it."""
    first = results[0]
    title = (
        f"{first.stream}: {first.tuples:,} tuples, {first.keys:,} keys, "
        f"{first.sources} sources, {first.workers} workers"
    )
    return table(title, COLUMNS, rows(results))


def advice_text(advice: Advice) -> str:
    """Advice, as `skewless advise` prints it."""
    title = (
        f"{advice.stream}: {advice.tuples:,} rows, {advice.keys:,} keys, "
        f"{advice.workers} workers, {advice.operator} operator"
    )
    hot = [
        [shortened(key.name), f"{key.tuples:,}", f"{key.share:.2%}", f"{key.fair_shares:.2f}"]
        for key in advice.hot
    ]
    able = [result for result in advice.results if result.scheme in advice.usable]
    others = [result for result in advice.results if result.scheme not in advice.usable]
    parts = [
        table("what Spark can be told to do", COLUMNS, rows(able)),
        table("for comparison: Spark has no call for these", COLUMNS, rows(others)),
    ]
    if hot:
        parts.insert(0, table("hot keys", ("key", "rows", "share", "of one worker's fair share"), hot))
    return "\n".join([title, *parts, *advice.words])


def outlook_text(outlook: Outlook) -> str:
    """How far ahead the hot keys can be foreseen, as `skewless advise --forecast` prints it."""
    horizons = sorted({one.horizon for one in outlook.outcomes})
    found = {(one.forecaster, one.horizon): one for one in outlook.outcomes}
    names = list(dict.fromkeys(one.forecaster for one in outlook.outcomes))
    cells = [
        [name, *(f"{found[name, h].stretch:.3f}x ({found[name, h].wrong:.1%})" for h in horizons)]
        for name in names
    ]
    cells.append(["known in advance", *(f"{found[names[0], h].known:.3f}x" for h in horizons)])
    columns = ("forecast", *(f"{h} ahead" for h in horizons))
    title = (
        f"batches under tables made from forecasts, {outlook.windows} windows of {outlook.window_rows:,} "
        "rows (rows foreseen at the wrong key)"
    )
    return "\n".join([table(title, columns, cells), *outlook.words])


def as_dicts(results: Sequence[Result]) -> list[dict[str, object]]:
    """Results for JSON."""
    return [{**asdict(result), "memory_ratio": result.memory_ratio} for result in results]
