"""The plots of one query, from what is remembered of it: for the report, and for a notebook's cell.

Separate from the page because a notebook shows them too, and from `svg`, which knows no queries.
"""

from __future__ import annotations

from datetime import datetime
from html import escape

from skewless.report import svg
from skewless.report.records import BatchRecord, QueryRecord
from skewless.wording import amount

DRAWN_KEYS = 8
NUMBER = "{:,.10g}".format
HEAT_WORDS = ("nothing", "half the mean", "the mean", "1.5 times", "twice the mean and more")
HEAT_SHADES = (0, 3, 5, 8, 10)


def frame_of(query: QueryRecord) -> svg.Frame:
    """The x axis that all plots of a query share: its batches, when they were committed, and its swaps."""
    marks = tuple((swap.batch, f"e{swap.epoch}", str(swap)) for swap in query.swaps)
    return svg.Frame(query.batches[0].batch, query.batches[-1].batch, marks, times_of(query.batches))


def times_of(batches: tuple[BatchRecord, ...]) -> dict[int, str]:
    """The wall clock at the commit of each batch."""
    return {batch.batch: f"{datetime.fromtimestamp(batch.at):%H:%M:%S}" for batch in batches if batch.at}


def heat_legend() -> str:
    return svg.legend(HEAT_WORDS, HEAT_SHADES)


def plots(query: QueryRecord, max_imbalance: float | None) -> str:
    """All that can be drawn of a query, one below the other."""
    batches, frame = query.batches, frame_of(query)
    busy = [(batch.batch, batch.imbalance if batch.rows else None) for batch in batches]
    foreseen = [(swap.batch, swap.predicted) for swap in query.swaps if frame.first <= swap.batch]
    moved = [(swap.batch, float(swap.bytes_moved or 0)) for swap in query.swaps if frame.first <= swap.batch]
    hot = _hot_shares(query)
    across = "" if max_imbalance is None else f"; dashed: max_imbalance, {max_imbalance:g}"
    loads = svg.heat(frame, [(batch.batch, batch.loads) for batch in batches])
    times = [(batch.batch, float(batch.batch_ms) if batch.rows else None) for batch in batches]
    clock = [(batch.batch, batch.predicted_ms if batch.rows else None) for batch in batches]
    curves = {"real": times, "predicted": clock}
    entries = [(batch.batch, float(batch.entries)) for batch in batches]
    slots = [(batch.batch, float(batch.slots) if batch.slots else None) for batch in batches]
    sections = [
        ("Load of each partition", "What the rows of each partition cost in task time, against the batch's "
         "mean. Vertical lines mark swaps, in every plot; e3: epoch 3 from here on.", heat_legend() + loads),
        ("Imbalance", "Share of time that tasks lost against level ones, on the slots there were; circles: "
         f"what the plan predicted{across}.",
         svg.curves(frame, {"imbalance": busy}, "imbalance", level=max_imbalance, dots=foreseen)),
        ("Batch time", "From start to commit, and what the clock predicted from the batch's rows"
         f"{_off(query)}. A gap: a batch without rows.",
         svg.legend(list(curves)) + svg.curves(frame, curves, "milliseconds", NUMBER)),
        ("Hottest keys", "Shares of the rows of each batch, one on top of the other, of the keys that were "
         "hottest at any time. A key without a bar was not among the hottest of that batch."
         f"{_level_words(query)}",
         svg.legend(list(hot)) + svg.stack(frame, hot, "% of the rows")),
        *_foreseen(query, frame),
        ("Table size", "Entries of the table in force.",
         svg.curves(frame, {"entries": entries}, "entries", NUMBER, steps=True, height=90)),
        ("State moved", "Bytes that each swap moved.", svg.bars(frame, moved, "bytes", amount)),
    ]  # fmt: skip
    if any(count for _, count in slots):
        drawn = svg.curves(frame, {"slots": slots}, "slots", NUMBER, steps=True, height=60)
        sections.append(("Slots", "Tasks that the living executors run at once.", drawn))
    return "".join(
        f'<h3>{title}</h3><p class="note">{escape(note)}</p>{plot}' for title, note, plot in sections
    )


def _foreseen(query: QueryRecord, frame: svg.Frame) -> list[tuple[str, str, str]]:
    """The hottest key of each batch, with the share that was foreseen; nothing without a forecast."""
    hottest = [(batch.batch, batch.hot_keys[0] if batch.hot_keys else None) for batch in query.batches]
    if all(key is None or key.foreseen is None for _, key in hottest):
        return []
    curves = {
        "real": [(batch, None if key is None else 100 * key.share) for batch, key in hottest],
        "foreseen": [
            (batch, None if key is None or key.foreseen is None else 100 * key.foreseen)
            for batch, key in hottest
        ],
    }
    plot = svg.legend(list(curves)) + svg.curves(frame, curves, "% of the rows")
    note = "Share of each batch's hottest key, and what was foreseen of that key before the batch came."
    return [("Foreseen and real", note, plot)]


def _off(query: QueryRecord) -> str:
    return "" if query.model_error is None else f" (off by {query.model_error:.0%} in the median)"


def _level_words(query: QueryRecord) -> str:
    return f" {query.level_keys_words}" if query.level_keys_words else ""


def _hot_shares(query: QueryRecord) -> dict[str, list[svg.Point]]:
    """The keys that were hottest at any time, hottest first, with their share in each batch in percent."""
    peaks: dict[int, float] = {}
    labels: dict[int, str] = {}
    for batch in query.batches:
        for key in batch.hot_keys:
            peaks[key.key_hash] = max(peaks.get(key.key_hash, 0.0), key.share)
            if key.value is not None or key.key_hash not in labels:
                labels[key.key_hash] = key.label
    drawn = sorted(peaks, key=lambda key_hash: (-peaks[key_hash], key_hash))[:DRAWN_KEYS]
    curves: dict[str, list[svg.Point]] = {labels[key_hash]: [] for key_hash in drawn}
    for batch in query.batches:
        shares = {key.key_hash: 100 * key.share for key in batch.hot_keys}
        for key_hash in drawn:
            curves[labels[key_hash]].append((batch.batch, shares.get(key_hash)))
    return curves
