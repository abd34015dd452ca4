"""Curves and bars of results, with matplotlib.

Separate from the terminal because matplotlib is an extra that only pictures need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skewless.errors import SettingError
from skewless.simulate.simulator import Result

Points = Sequence[tuple[float, float]]
COLOURS = (
    "#4477AA",
    "#EE6677",
    "#228833",
    "#CCBB44",
    "#66CCEE",
    "#AA3377",
    "#777777",
    "#000000",
    "#EE8866",
    "#99DDFF",
)
MARKERS = "os^Dv*Pxd+"
MARK_INCHES, LETTER_INCHES, LINE_INCHES = 0.55, 0.066, 0.18  # of the legend, at 8 points


def panels(
    path: str | Path,
    curves: Mapping[str, Mapping[str, Points]],
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    title: str = "",
    panel_inches: float = 3.1,
) -> None:
    """One panel for each name in `curves`, side by side, the same colours in all; written as the path's
    ending says."""
    plt, ticker = _pyplot()
    names = list(dict.fromkeys(name for panel in curves.values() for name in panel))
    size = (1.2 + panel_inches * len(curves), 3.0)
    figure, axes = plt.subplots(1, len(curves), figsize=size, sharey=True, squeeze=False)
    for axis, (panel, lines) in zip(axes[0], curves.items(), strict=True):
        for name, points in lines.items():
            i = names.index(name)
            marker = MARKERS[i % len(MARKERS)] if len(points) <= 25 else None
            style = {
                "color": COLOURS[i % len(COLOURS)],
                "marker": marker,
                "markerfacecolor": "none",
                "lw": 1.3,
            }
            axis.plot(
                *zip(*points, strict=True), label=name, markersize=max(3.5, 7 - i), **style
            )  # rings: lines may coincide
        axis.set_title(panel, fontsize=9)
        axis.set_xlabel(x, fontsize=9)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
        if log_x:
            axis.set_xscale("log")
            _plain(axis.xaxis, ticker, sorted({point[0] for points in lines.values() for point in points}))
        else:
            axis.xaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
            axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda tick, _: _number(tick)))
        if log_y:
            axis.set_yscale("log")
            low, high = axis.get_ylim()
            if high < 100 * low:
                _plain(axis.yaxis, ticker, ())
    axes[0][0].set_ylabel(y, fontsize=9)
    figure.suptitle(title or None, fontsize=10)
    _finish(figure, axes, names, path)
    plt.close(figure)


def dots(
    path: str | Path, rows: Sequence[str], marks: Mapping[str, Mapping[str, Sequence[float]]], x: str
) -> None:
    """Panels of points, a line of them for each of `rows`: for things that have no order, which a curve would
    pretend. `marks` gives each panel's names their values, one per row."""
    plt, _ = _pyplot()
    names = list(dict.fromkeys(name for panel in marks.values() for name in panel))
    size = (2.2 + 3.1 * len(marks), 0.9 + 0.24 * len(rows))
    figure, axes = plt.subplots(1, len(marks), figsize=size, sharey=True, squeeze=False)
    for axis, (panel, series) in zip(axes[0], marks.items(), strict=True):
        for name, values in series.items():
            i = names.index(name)
            style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
            axis.plot(
                values, range(len(rows)), label=name, linestyle="none", markerfacecolor="none", markersize=6,
                **style,
            )  # fmt: skip
        axis.set_title(panel, fontsize=9)
        axis.set_xlabel(x, fontsize=9)
        axis.grid(alpha=0.3)
        axis.tick_params(labelsize=8)
    axes[0][0].set_yticks(range(len(rows)), rows)
    axes[0][0].invert_yaxis()
    _finish(figure, axes, names, path)
    plt.close(figure)


def _number(tick: float) -> str:
    """A large number as people write it in little room.

    >>> _number(250_000), _number(1.5e6), _number(0.25)
    ('250k', '1.5M', '0.25')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(tick) >= unit:
            return f"{tick / (1e3 if name == 'k' else unit):g}{name}"
    return f"{tick:g}"


def _plain(axis: Any, ticker: Any, ticks: Sequence[float]) -> None:
    """Numbers as people write them, at the points that were measured, unless these are too many."""
    fixed = 0 < len(ticks) <= 8
    axis.set_major_locator(ticker.FixedLocator(ticks) if fixed else ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda tick, _: f"{tick:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def _finish(figure: Any, axes: Any, names: Sequence[str], path: str | Path) -> None:
    """The legend below, as wide as the figure allows; the figure grows by its lines."""
    handles = {
        label: line for axis in axes[0] for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    width, height = figure.get_size_inches()
    entry = MARK_INCHES + LETTER_INCHES * max(map(len, names))
    columns = max(1, min(len(names), int(width / entry)))
    legend = LINE_INCHES * -(-len(names) // columns) + 0.1
    figure.set_size_inches(max(width, entry), height + legend)
    figure.legend(
        [handles[n] for n in names], names, loc="lower center", ncol=columns, fontsize=8, frameon=False
    )
    figure.tight_layout(rect=(0, legend / (height + legend), 1, 1))
    try:
        figure.savefig(path, dpi=110, metadata={"Date": None} if str(path).endswith(".svg") else None)
    except (OSError, ValueError) as error:
        raise SettingError(f"the plot cannot be written to {path} ({error}). Give another path.") from error


def check_path(path: Path) -> None:
    """Complains of a path that cannot take a plot, before the work of hours is done for it."""
    plt, _ = _pyplot()
    endings = plt.Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in endings:
        raise SettingError(f"{path}: a plot is written as its ending says. Give .svg, .png or .pdf.")
    if not path.parent.is_dir():
        raise SettingError(f"{path}: there is no folder {path.parent}. Make it, or give another path.")
    if path.is_dir():
        raise SettingError(f"{path} is a folder. Give the path of a file.")


def imbalance_over_time(path: str | Path, results: Sequence[Result]) -> None:
    """I(t) of each scheme as a share of the tuples so far: what `skewless simulate --plot` draws. Less than
    half a tuple, which a logarithm cannot show down to zero, is drawn as half a tuple."""
    curves = {result.scheme: [(t, max(i, 0.5) / t) for t, i in result.points if t] for result in results}
    present = {name: points for name, points in curves.items() if points}
    if not present:
        raise SettingError("there is nothing to plot: the stream is empty.")
    first = results[0]
    panel = f"{first.stream}, {first.workers} workers"
    panels(path, {panel: present}, "tuples", "imbalance I(t) / t", log_y=True, panel_inches=5.3)


def _pyplot() -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError as error:
        raise SettingError("Plots need matplotlib, which is missing. Install skewless[report].") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "skewless"
    import matplotlib.pyplot as plt
    from matplotlib import ticker

    return plt, ticker
