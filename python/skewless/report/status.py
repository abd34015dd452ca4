"""What `balancer.status()` returns: prints as text, shows as HTML in a notebook.

Separate from the records because they hold facts, and this puts them into words for a terminal and for a
page; the report reuses the page's tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from skewless.report.placing import PlacingRecord
from skewless.report.plots import plots
from skewless.report.records import BatchRecord, HotKey, QueryRecord
from skewless.wording import amount, counted

SHOWN_KEYS = 5
SHOWN_SWAPS = 5
PLOT_STYLE = """
.skewless svg { max-width: 100%; height: auto; display: block }
.skewless svg text { font: 11px system-ui, sans-serif; fill: #666 }
.skewless p.note, .skewless p.legend { font-size: 13px; color: #666; margin: 0.2em 0 }
.skewless .item { display: inline-block; margin-right: 12px }
.skewless .swatch { display: inline-block; width: 11px; height: 11px; margin-right: 5px }
"""


@dataclass(frozen=True)
class Status:
    """All queries that the loop has seen, as they stood when this was made. `loop` says in words what the
    loop does."""

    loop: str
    queries: tuple[QueryRecord, ...] = ()
    errors: dict[str, int] = field(default_factory=dict)
    max_imbalance: float | None = None
    placing: PlacingRecord | None = None  # None: nothing is placed

    def __str__(self) -> str:
        lines = [self.loop]
        lines += [f"  error, {counted(count, 'time')}: {words}" for words, count in self.errors.items()]
        if not self.queries:
            lines.append("no streaming query has been seen")
        for query in self.queries:
            lines += ["", f"query {query.title}", *_aligned(facts(query))]
        if self.placing is not None:
            lines += ["", *self.placing.lines]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(self.loop)}</p>", errors_html(self.errors)]
        if not self.queries:
            parts.append("<p>no streaming query has been seen</p>")
        for query in self.queries:
            cells = [(name, "<br>".join(escape(line) for line in lines)) for name, lines in facts(query)]
            parts += [f"<h4>query {escape(query.title)}</h4>", grid_html((), cells)]
            if query.batches:
                parts.append(plots(query, self.max_imbalance))
        if self.placing is not None:
            parts += [f"<p>{escape(line)}</p>" for line in self.placing.lines]
        return f'<div class="skewless"><style>{PLOT_STYLE}</style>{"".join(parts)}</div>'


def facts(query: QueryRecord) -> list[tuple[str, list[str]]]:
    """What to tell of a query, in the order in which people ask; lines under a heading each."""
    last = query.last_batch
    found = [("state", [_state(query)])]
    if last is not None:
        found.append(
            (
                "table",
                [
                    f"epoch {query.epoch}, {_entries(query.entries)} for "
                    f"{counted(len(last.loads), 'partition')}"
                ],
            )
        )
        found.append(
            (
                "imbalance",
                [
                    f"{shown(query.imbalance)} now (share of time lost against level tasks)",
                    *_imbalances(query),
                ],
            )
        )
        found.append(("clock", [_clock(query, last)]))
        found.append(("hot keys", hot_lines(query)))
        found += [("forecast", [query.forecast])] if query.forecast else []
    if query.splits:
        found.append(("splits", [str(split) for split in query.splits]))
    if query.swaps:
        found.append(
            (
                "swaps",
                [
                    f"{len(query.swaps)} remembered, {amount(query.bytes_moved)} of state moved",
                    *_swaps(query),
                ],
            )
        )
    found.append(("now", [query.why]))
    if query.errors:
        found.append(
            ("errors", [f"{counted(count, 'time')}: {words}" for words, count in query.errors.items()])
        )
    return found


def hot_lines(query: QueryRecord) -> list[str]:
    last = query.last_batch
    keys = () if last is None else last.hot_keys[:SHOWN_KEYS]
    lines = [_hot_line(key) for key in keys]
    lines += [query.level_keys_words] if query.level_keys_words else []
    return lines or ["none stands out"]


def _hot_line(key: HotKey) -> str:
    foreseen = "" if key.foreseen is None else f", {key.foreseen:.1%} foreseen"
    return f"{key.label}: {key.share:.1%} of the rows (up to {key.error:.1%} off){foreseen}"


def shown(value: float | None, form: str = ".3f") -> str:
    """A number, or a dash for one that is not known."""
    return "-" if value is None else format(value, form)


def _state(query: QueryRecord) -> str:
    state = "running" if query.running else "ended"
    if not query.batches:
        return f"{state}, no batch seen"
    newest = query.batches[-1]
    return f"{state}, batch {newest.batch} took {newest.batch_ms} ms for {newest.rows:,} rows"


def _clock(query: QueryRecord, last: BatchRecord) -> str:
    slots = counted(last.slots, "slot") if last.slots else "slots not known"
    if query.model_error is None:
        return f"{slots}; no batch predicted yet"
    return f"{slots}; predicted batch times are {query.model_error:.0%} off in the median"


def _entries(count: int) -> str:
    return f"{count:,} entry" if count == 1 else f"{count:,} entries"


def _imbalances(query: QueryRecord) -> list[str]:
    if not query.swaps:
        return []
    swap = query.swaps[-1]
    figures = (
        f"{shown(swap.before)} before, {shown(swap.predicted)} predicted, "
        f"{shown(query.realised(swap))} realised"
    )
    return [f"last swap: {figures}"]


def _swaps(query: QueryRecord) -> list[str]:
    return [query.sentence(swap) for swap in reversed(query.swaps[-SHOWN_SWAPS:])]


def _aligned(found: Iterable[tuple[str, list[str]]]) -> list[str]:
    return [f"  {name if i == 0 else '':10} {line}" for name, lines in found for i, line in enumerate(lines)]


# -- HTML ----------------------------------------------------------------------------------------------------


def grid_html(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are HTML already."""
    head = "<tr>" + "".join(f"<th>{column}</th>" for column in columns) + "</tr>" if columns else ""
    cell = '<td style="text-align:left;vertical-align:top">'
    body = "".join("<tr>" + "".join(f"{cell}{value}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


def errors_html(errors: dict[str, int]) -> str:
    return "".join(
        f"<p>error, {counted(count, 'time')}: {escape(words)}</p>" for words, count in errors.items()
    )
