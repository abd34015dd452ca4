"""`balancer.report(path)`: one HTML file with the story of every query, in words, tables and plots.

Separate from the status because it shows the whole of what is remembered, not the moment. The file holds all
that it shows: no script, no style sheet and no picture is fetched from anywhere.
"""

from __future__ import annotations

import os
from datetime import datetime
from html import escape
from pathlib import Path

from skewless.errors import SettingError
from skewless.report import placing, svg
from skewless.report.comparison import Comparison
from skewless.report.plots import plots
from skewless.report.records import BatchRecord, QueryRecord, SplitRecord, SwapRecord, key_label
from skewless.report.status import Status, errors_html, grid_html, hot_lines, shown
from skewless.wording import amount, counted

SWAP_COLUMNS = ("batch", "epoch", "keys", "before", "predicted", "realised", "state rows", "bytes",
                "export ms", "batch ms", "pause ms", "since", "why", "hottest keys moved")  # fmt: skip

SPLIT_COLUMNS = ("key", "side", "width", "partitions", "rows copied in the last batch", "state copied",
                 "time saved, predicted")  # fmt: skip

LIGHT_PAGE = (
    "--ink: #1b1b1b; --soft: #555; --paper: #fff; --line: #ddd; "
    "--grid: #e4e4e4; --axis: #999; --panel: #f5f5f5"
)
DARK_PAGE = (
    "--ink: #e6e6e6; --soft: #b0b3b8; --paper: #16181c; --line: #3a3d42; "
    "--grid: #2c2f34; --axis: #777; --panel: #22252a"
)
STYLE = (
    f"""
:root {{ color-scheme: light dark; {LIGHT_PAGE} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK_PAGE}; {svg.DARK} }} }}
"""
    + """
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); \
overflow-wrap: anywhere }
body { max-width: 1180px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } \
h2 { font-size: 1.2em; margin-top: 2em; border-top: 1px solid var(--line); padding-top: 1em }
h3 { font-size: 1em; margin: 1.6em 0 0 } svg { max-width: 100%; height: auto; display: block }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft) }
p.note, p.legend { font-size: 13px; color: var(--soft); margin: 0.2em 0 }
table { border-collapse: collapse; font-size: 13px }
td, th { padding: 2px 10px 2px 0; text-align: left; border-bottom: 1px solid var(--grid) }
.item { display: inline-block; margin-right: 12px }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border: 1px solid var(--axis) }
td.figure { white-space: nowrap }
.why { background: var(--panel); padding: 0.4em 0.8em }
"""
)


def write(path: str | os.PathLike[str], status: Status, comparison: Comparison | None = None) -> Path:
    """Writes the report, with a comparison of two runs above it if there is one, and returns where it is."""
    target = Path(path)
    try:
        target.write_text(page(status, comparison), encoding="utf-8")
    except OSError as error:
        raise SettingError(
            f"the report cannot be written to {target}: {error}. Give a file in a folder that you can write."
        ) from error
    return target


def page(status: Status, comparison: Comparison | None = None) -> str:
    """The report as HTML."""
    made = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    body = [
        f"<h1>Skewless: what it saw and did</h1><p>{escape(status.loop)}. Made {made}.</p>",
        errors_html(status.errors),
        "" if comparison is None else comparison.html(),
        _overview(status.queries) if len(status.queries) > 1 else "",
        _executors(status),
    ]
    body += [_query(query, status.max_imbalance) for query in status.queries] or [
        "<p>No streaming query has been seen.</p>"
    ]
    head = f'<meta charset="utf-8"><title>Skewless report</title><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _executors(status: Status) -> str:
    """Who holds what, of all queries; nothing where nothing is placed."""
    if status.placing is None:
        return ""
    lines = "<br>".join(escape(line) for line in status.placing.lines)
    titles = [(query.query_id, query.title) for query in status.queries]
    return f"<p>{lines}</p>" + "".join(placing.picture(status.placing, i, title) for i, title in titles)


def _query(query: QueryRecord, max_imbalance: float | None) -> str:
    parts = [f"<h2>Query {escape(query.name or query.query_id)}</h2>"]
    parts.append(f'<p class="note">id {escape(query.query_id)}</p><p>{escape(summary(query))}</p>')
    parts.append(f'<p class="why">{"Now" if query.running else "Ended"}: {escape(query.why)}</p>')
    parts.append(errors_html(query.errors))
    if query.forecast:
        parts.append(f'<p class="note">Forecast: {escape(query.forecast)}.</p>')
    if query.batches:
        parts += [plots(query, max_imbalance), _hot_table(query), _split_table(query), _swap_table(query)]
    return "".join(parts)


OVERVIEW = ("query", "state", "last batch", "slots", "imbalance", "swaps", "last swap", "now")


def _overview(queries: tuple[QueryRecord, ...]) -> str:
    """A line for each query, where there are several."""
    rows = []
    for query in queries:
        last = query.last_batch
        cells = [query.name or query.query_id, "running" if query.running else "ended"]
        cells += (
            ["-", "-", "-"] if last is None else [f"{last.batch}", f"{last.slots}", shown(query.imbalance)]
        )
        gain = query.gain_words(query.swaps[-1]) if query.swaps else "-"
        rows.append([escape(cell) for cell in [*cells, str(len(query.swaps)), gain, query.why]])
    return f"<h2>All queries</h2>{grid_html(OVERVIEW, rows)}"


def summary(query: QueryRecord) -> str:
    """The story in a few sentences: what was seen, what was moved, what it gave."""
    if not query.batches:
        return "No batch with a routed exchange has been seen."
    first_batch, last_batch = query.batches[0].batch, query.batches[-1].batch
    parts = [
        f"{len(query.batches)} {'batch' if len(query.batches) == 1 else 'batches'} remembered, {first_batch} "
        f"to {last_batch}"
    ]
    first, last = _before_swaps(query), _since_last_swap(query)
    if not query.swaps:
        imbalance = _mean_imbalance(query.batches)
        return f"{parts[0]}; no swap; imbalance {imbalance} (share of time lost against level tasks)."
    keys = sum(swap.moved for swap in query.swaps)
    parts.append(
        f"{counted(len(query.swaps), 'swap')} moved {counted(keys, 'key')} and {amount(query.bytes_moved)} "
        "of state"
    )
    pauses = [swap.pause_ms for swap in query.swaps if swap.pause_ms is not None]
    parts += [f"the longest pause was {max(pauses):.0f} ms"] if pauses else []
    if first and last:
        parts.append(
            f"imbalance {_mean_imbalance(first)} before the first swap, {_mean_imbalance(last)} since the "
            "last"
        )
        parts.append(f"since the last swap {query.gain_words(query.swaps[-1])}")
    return "; ".join(parts) + "."


def _before_swaps(query: QueryRecord) -> list[BatchRecord]:
    return [batch for batch in query.batches if batch.batch < query.swaps[0].batch] if query.swaps else []


def _since_last_swap(query: QueryRecord) -> list[BatchRecord]:
    return [batch for batch in query.batches if batch.batch > query.swaps[-1].batch] if query.swaps else []


def _mean_imbalance(batches: list[BatchRecord] | tuple[BatchRecord, ...]) -> str:
    seen = [batch.imbalance for batch in batches if batch.rows]
    return f"{sum(seen) / len(seen):.3f}" if seen else "-"


# -- tables --------------------------------------------------------------------------------------------------


def _hot_table(query: QueryRecord) -> str:
    rows = [[escape(line)] for line in hot_lines(query)]
    return "<h3>Hottest keys of the last batch</h3>" + grid_html((), rows)


def _split_table(query: QueryRecord) -> str:
    if not query.splits:
        return ""
    rows = [[escape(cell) for cell in _split_row(split)] for split in query.splits]
    return f'<h3>Split keys</h3><div class="wide">{grid_html(SPLIT_COLUMNS, rows)}</div>'


def _split_row(split: SplitRecord) -> list[str]:
    size = "-" if split.copied_bytes is None else amount(split.copied_bytes)
    return [
        key_label(split.key_hash, split.value),
        split.side,
        str(split.width),
        " ".join(map(str, split.targets)),
        shown(split.copied_rows, ",d"),
        size,
        shown(split.gain, ".0%"),
    ]


def _swap_table(query: QueryRecord) -> str:
    if not query.swaps:
        return ""
    rows = [_swap_row(query, swap) for swap in reversed(query.swaps)]
    return f"<h3>Swaps</h3>{grid_html(SWAP_COLUMNS, rows)}"


def _swap_row(query: QueryRecord, swap: SwapRecord) -> list[str]:
    moved = "-" if swap.bytes_moved is None else amount(swap.bytes_moved)
    cells = [str(swap.batch), str(swap.epoch), str(swap.moved), shown(swap.before), shown(swap.predicted)]
    cells += [
        shown(query.realised(swap)),
        shown(swap.state_rows, ",d"),
        moved,
        shown(swap.export_ms, "d"),
        str(swap.batch_ms),
    ]
    cells += [
        shown(swap.pause_ms, ".0f"),
        query.gain_words(swap),
        swap.why,
        "; ".join([swap.keys.removeprefix("hashes "), *(f"split {split}" for split in swap.splits)]),
    ]
    return [escape(cell) for cell in cells]
