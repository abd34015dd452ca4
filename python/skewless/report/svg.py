"""Small plots as SVG text: curves, bars and a heat map over the batches of a query, with its swaps marked.

Separate from the report because it knows pictures and no queries; our own few lines instead of matplotlib, so
that a report needs no extra package, no script and no network. All plots of one `Frame` share their x axis
and can be read one below the other. Colours are CSS variables with the light page's as default, so that a
page can give others for a dark one (`DARK`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from skewless.model.snapshot import Floats

COLOURS = ("#4477AA", "#EE6677", "#228833", "#AA3377", "#CCBB44", "#66CCEE", "#777777", "#EE8866")
# From below the mean (blue) through the mean (nearly white) to twice the mean and more (red).
HEAT = (
    "#2166ac",
    "#4393c3",
    "#74add1",
    "#abd9e9",
    "#dcecf4",
    "#f4f4f4",
    "#fde3d0",
    "#fdbb84",
    "#f46d43",
    "#d73027",
    "#a50026",
)
DARK_HEAT = (
    "#5aa9f0",
    "#4a8fd0",
    "#3b74aa",
    "#2f5a82",
    "#28425a",
    "#2b2e33",
    "#55402f",
    "#8a5a34",
    "#c9733a",
    "#ef6a4c",
    "#ff8f80",
)
DARK_COLOURS = ("#7aa7d9", "#ff8896", "#5cc26e", "#d67bb5", "#ddcf6a", "#8adcf5", "#b0b0b0", "#ffab8c")
DARK = " ".join(
    [f"--h{i}: {c};" for i, c in enumerate(DARK_HEAT)] + [f"--c{i}: {c};" for i, c in enumerate(DARK_COLOURS)]
)
CROWD = 40  # more swaps than this are marked faintly
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1140, 84, 12, 16, 54
MOST_COLUMNS, MOST_ROWS, LABEL_WIDTH = 150, 64, 26

_DOT = "fill:var(--paper,#fff);stroke:var(--ink,#333)"
_MARK = "stroke:var(--soft,#555);stroke-dasharray:3 3"

Point = tuple[int, float | None]  # a batch and its value; None leaves a gap
Form = Callable[[float], str]


@dataclass(frozen=True)
class Frame:
    """The x axis: batches from `first` to `last`, the swaps, (batch, label, tooltip), that every plot marks,
    and the wall clock of the batches, where it is known."""

    first: int
    last: int
    swaps: tuple[tuple[int, str, str], ...] = ()
    times: Mapping[int, str] = field(default_factory=dict)

    def x(self, batch: float) -> float:
        """The left edge of a batch's column."""
        return LEFT + (batch - self.first) * (WIDTH - LEFT - RIGHT) / (self.last - self.first + 1)

    def middle(self, batch: float) -> float:
        return self.x(batch + 0.5)


def curves(
    frame: Frame,
    lines: Mapping[str, Sequence[Point]],
    unit: str,
    form: Form = "{:g}".format,
    *,
    level: float | None = None,
    dots: Sequence[Point] = (),
    steps: bool = False,
    height: int = 150,
) -> str:
    """One curve a name; `unit` names the y axis, `level` draws a dashed line across, `dots` hollow circles,
    `steps` joins points at right angles."""
    values = [value for points in [*lines.values(), dots] for _, value in points if value is not None]
    top = _ceiling(max([*values, level or 0.0, 0.0]))
    body = [_axes(frame, top, unit, form, height) if values else _nothing(frame, unit, height)]
    if level is not None:
        y = _y(level, top, height)
        body.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" style="stroke:var(--soft,#777)" '
            'stroke-dasharray="6 4"/>'
        )
    for i, (name, points) in enumerate(lines.items()):
        path = _path(frame, points, top, height, steps)
        if path:
            body.append(
                f'<path d="{path}" fill="none" style="stroke:{_colour(i)}" stroke-width="1.6" '
                f'stroke-linejoin="round" stroke-linecap="round"><title>{escape(name)}</title></path>'
            )
    for batch, value in dots:
        if value is not None:
            x, y = frame.middle(batch), _y(value, top, height)
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" stroke-width="1.3" style="{_DOT}"/>')
    return _svg(body, height)


def bars(
    frame: Frame, points: Sequence[Point], unit: str, form: Form = "{:g}".format, height: int = 110
) -> str:
    """A bar at each point, wide enough to be seen."""
    top = _ceiling(max([value or 0.0 for _, value in points], default=0.0))
    width = max(4.0, frame.x(1) - frame.x(0) - 1)
    seen = any(value for _, value in points)
    body = [_axes(frame, top, unit, form, height) if seen else _nothing(frame, unit, height)]
    for batch, value in points:
        if value:
            y = _y(value, top, height)
            tall = TOP + height - y
            place = (
                f'x="{frame.middle(batch) - width / 2:.1f}" y="{y:.1f}" '
                f'width="{width:.1f}" height="{tall:.1f}"'
            )
            body.append(
                f'<rect {place} style="fill:{_colour(0)}">'
                f"<title>batch {batch}: {escape(form(value))}</title></rect>"
            )
    return _svg(body, height)


def stack(
    frame: Frame,
    layers: Mapping[str, Sequence[Point]],
    unit: str,
    form: Form = "{:g}".format,
    height: int = 150,
) -> str:
    """A bar per batch, made of one piece per name, the first at the bottom; all layers have the same
    batches."""
    floors: dict[int, float] = {}
    pieces = []
    for points in layers.values():
        piece = []
        for batch, value in points:
            if value:
                piece.append((batch, floors.get(batch, 0.0), value))
                floors[batch] = floors.get(batch, 0.0) + value
        pieces.append(piece)
    top = _ceiling(max(floors.values(), default=0.0))
    width = max(1.0, frame.x(1) - frame.x(0) - (1 if frame.last - frame.first < MOST_COLUMNS else 0))
    body = [_axes(frame, top, unit, form, height) if floors else _nothing(frame, unit, height)]
    for i, (name, piece) in enumerate(zip(layers, pieces, strict=True)):
        path = "".join(
            f"M{frame.x(batch):.1f} {_y(floor + value, top, height):.1f}h{width:.1f}"
            f"v{height * value / top:.1f}h-{width:.1f}z"
            for batch, floor, value in piece
        )
        if path:
            body.append(f'<path d="{path}" style="fill:{_colour(i)}"><title>{escape(name)}</title></path>')
    return _svg(body, height)


def heat(frame: Frame, columns: Sequence[tuple[int, Floats]]) -> str:
    """Loads, one column per batch (or a few), one row per partition (or the heaviest of a few): colour is
    load / mean."""
    partitions = max(len(loads) for _, loads in columns)
    per_row = math.ceil(partitions / MOST_ROWS)
    rows = math.ceil(partitions / per_row)
    tall = min(22.0, max(4.0, 176 / rows))
    height = round(tall * rows)
    cells: dict[int, list[str]] = {}
    for first, last, ratios in _buckets(columns, partitions):
        x, width = frame.x(first), frame.x(last + 1) - frame.x(first)
        for row in range(rows):
            ratio = float(ratios[row * per_row : (row + 1) * per_row].max())
            if ratio >= 0:
                shade = min(len(HEAT) - 1, round(ratio * (len(HEAT) - 1) / 2))
                cells.setdefault(shade, []).append(
                    f"M{x:.1f} {TOP + row * tall:.1f}h{width:.1f}v{tall:.1f}h-{width:.1f}z"
                )
    body = [
        f'<path d="{"".join(paths)}" style="fill:{_shade(shade)}"/>' for shade, paths in sorted(cells.items())
    ]
    if not cells:
        return _svg([_nothing(frame, "partition", height)], height)
    for row in range(0, rows, math.ceil(rows / 8)):
        body.append(_text(LEFT - 6, TOP + (row + 0.5) * tall + 4, str(row * per_row), "end"))
    return _svg([*body, _unit("partition", height), _batch_axis(frame, height)], height)


def places(
    frame: Frame, columns: Sequence[tuple[int, Sequence[int]]], dots: Sequence[tuple[int, int]] = ()
) -> str:
    """One column per batch, one row per partition, coloured by a number that stands for a place (-1: none);
    hollow circles at `dots`, (batch, partition)."""
    rows = max(len(places) for _, places in columns)
    tall = min(22.0, max(4.0, 176 / max(rows, 1)))
    height = round(tall * rows)
    cells: dict[int, list[str]] = {}
    for batch, found in columns:
        x, width = frame.x(batch), frame.x(batch + 1) - frame.x(batch)
        for row, place in enumerate(found):
            if place >= 0:
                cells.setdefault(place, []).append(
                    f"M{x:.1f} {TOP + row * tall:.1f}h{width:.1f}v{tall:.1f}h-{width:.1f}z"
                )
    body = [f'<path d="{"".join(paths)}" style="fill:{_colour(i)}"/>' for i, paths in sorted(cells.items())]
    body += [
        f'<circle cx="{frame.middle(batch):.1f}" cy="{TOP + (row + 0.5) * tall:.1f}" r="3" style="{_DOT}"/>'
        for batch, row in dots
    ]
    for row in range(0, rows, math.ceil(rows / 8)):
        body.append(_text(LEFT - 6, TOP + (row + 0.5) * tall + 4, str(row), "end"))
    return _svg([*body, _unit("partition", height), _batch_axis(frame, height)], height)


def legend(names: Sequence[str], shades: Sequence[int] | None = None) -> str:
    """The names with the colours of curves, or with shades of the heat map, as HTML to stand above a plot."""
    colours = [_colour(i) if shades is None else _shade(shades[i]) for i in range(len(names))]
    pairs = zip(names, colours, strict=True)
    items = (
        f'<span class="item"><span class="swatch" style="background:{c}"></span>{escape(n)}</span>'
        for n, c in pairs
    )
    return f'<p class="legend">{" ".join(items)}</p>'


# -- parts ---------------------------------------------------------------------------------------------------


def _buckets(columns: Sequence[tuple[int, Floats]], partitions: int) -> list[tuple[int, int, Floats]]:
    """(first batch, last batch, mean of load / mean of each partition) of up to 150 runs of batches; -1:
    nothing was done."""
    size = math.ceil(len(columns) / MOST_COLUMNS)
    buckets = []
    for start in range(0, len(columns), size):
        run = columns[start : start + size]
        seen, ratios = np.zeros(partitions), np.zeros(partitions)
        for _, loads in run:
            if loads.any():
                seen[: len(loads)] += 1
                ratios[: len(loads)] += loads / loads.mean()
        buckets.append((run[0][0], run[-1][0], np.where(seen > 0, ratios / np.maximum(seen, 1), -1.0)))
    return buckets


def _path(frame: Frame, points: Sequence[Point], top: float, height: int, steps: bool) -> str:
    parts, pen_down = [], False
    for i, (batch, value) in enumerate(points):
        if value is None:
            pen_down = False
            continue
        x, y = frame.middle(batch), _y(value, top, height)
        if pen_down:
            parts.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
        elif i + 1 == len(points) or points[i + 1][1] is None:
            parts.append(f"M{x - 2:.1f} {y:.1f}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0")  # a lone point is a small ring
        else:
            parts.append(f"M{x:.1f} {y:.1f}")
        pen_down = True
    return "".join(parts)


def _axes(frame: Frame, top: float, unit: str, form: Form, height: int) -> str:
    lines = [_unit(unit, height)]
    step = top / round(top / _nice(top / 4))
    for i in range(round(top / step) + 1):
        y = _y(i * step, top, height)
        stroke = "var(--axis,#999)" if i == 0 else "var(--grid,#e4e4e4)"
        lines.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" style="stroke:{stroke}"/>')
        lines.append(_text(LEFT - 6, y + 4, form(i * step), "end"))
    return "".join(lines) + _batch_axis(frame, height)


def _batch_axis(frame: Frame, height: int) -> str:
    parts = [_text((LEFT + WIDTH - RIGHT) / 2, TOP + height + (45 if frame.times else 31), "batch", "middle")]
    step = max(1, round(_nice((frame.last - frame.first + 1) / 10)))
    for batch in range(math.ceil(frame.first / step) * step, frame.last + 1, step):
        parts.append(_text(frame.middle(batch), TOP + height + 15, str(batch), "middle"))
        if batch in frame.times:
            parts.append(_text(frame.middle(batch), TOP + height + 29, frame.times[batch], "middle"))
    labelled, marked = -math.inf, [swap for swap in frame.swaps if frame.first <= swap[0] <= frame.last]
    faint = ' opacity="0.35"' if len(marked) > CROWD else ""
    for batch, label, words in marked:
        x, title = frame.x(batch), f"<title>{escape(words)}</title>"
        parts.append(f'<path d="M{x:.1f} {TOP - 2}V{TOP + height}" style="{_MARK}"{faint}>{title}</path>')
        if x - labelled >= LABEL_WIDTH:
            parts.append(_text(x, TOP - 5, label, "middle"))
            labelled = x
    return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _unit(words: str, height: int) -> str:
    """What the y axis measures, upright beside it."""
    place = f'transform="translate(13 {TOP + height / 2:.1f}) rotate(-90)"'
    return f'<text {place} text-anchor="middle">{escape(words)}</text>'


def _nothing(frame: Frame, unit: str, height: int) -> str:
    """A plot without values: its axes bare, and words to say so."""
    words = _text((LEFT + WIDTH - RIGHT) / 2, TOP + height / 2, "nothing to show", "middle")
    return _axes(frame, 1.0, unit, lambda _: "", height) + words


def _colour(i: int) -> str:
    return f"var(--c{i % len(COLOURS)},{COLOURS[i % len(COLOURS)]})"


def _shade(i: int) -> str:
    return f"var(--h{i},{HEAT[i]})"


def _svg(body: Sequence[str], height: int) -> str:
    whole = TOP + height + BOTTOM
    return (
        f'<svg viewBox="0 0 {WIDTH} {whole}" width="{WIDTH}" height="{whole}" role="img">'
        f"{''.join(body)}</svg>"
    )


def _y(value: float, top: float, height: int) -> float:
    return TOP + height * (1 - value / top)


def _nice(step: float) -> float:
    """The nearest of 1, 2, 5, 10, ... that is not below.

    >>> _nice(0.3), _nice(7), _nice(20)
    (0.5, 10.0, 20.0)
    """
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * lead for lead in (1, 2, 5, 10) if power * lead >= step * (1 - 1e-9))


def _ceiling(value: float) -> float:
    """A round number at or above the value; 1 for no value at all."""
    if not value > 0:
        return 1.0
    step = _nice(value / 4)
    return step * math.ceil(value / step * (1 - 1e-9))
