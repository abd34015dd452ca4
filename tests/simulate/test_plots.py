"""Pictures: nothing is cut off, no label lies on another, and what has no order is not joined by lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from skewless.errors import SettingError
from skewless.simulate import Cluster, plots, zipf
from skewless.simulate.simulator import compare

plt = pytest.importorskip("matplotlib.pyplot")

LONG = ["hash", "pkg:estimate=probed,period=5000", "fish:alpha=0.5,epoch=2000,interval=5", "mixed:window=2"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The figures that a test draws, kept open."""
    figures: list[Any] = []
    close = plt.close
    monkeypatch.setattr(plt, "close", figures.append)
    yield figures
    for figure in figures:
        close(figure)


@pytest.mark.parametrize("tuples", [9_000, 300_000, 3_000_000])
def test_the_plot_of_a_comparison_has_its_whole_legend_and_labels_that_can_be_read(
    drawn: list[Any], tmp_path: Path, tuples: int
) -> None:
    plots.imbalance_over_time(tmp_path / "p.png", compare(zipf(tuples, 100, 1.0), LONG, Cluster(8)))
    figure = drawn[0]
    whole, legend = figure.bbox, figure.legends[0].get_window_extent()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == LONG
    assert whole.x0 <= legend.x0 < legend.x1 <= whole.x1
    assert whole.y0 <= legend.y0 < legend.y1 <= figure.axes[0].get_tightbbox().y0 + 1
    labels = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_dots_are_not_joined(drawn: list[Any], tmp_path: Path) -> None:
    marks = {"one": {"a": [1.0, 2.0], "b": [2.0, 1.5]}, "two": {"a": [1.0, 3.0]}}
    plots.dots(tmp_path / "d.svg", ["words", "tags"], marks, "max/mean")
    lines = [line for axis in drawn[0].axes for line in axis.get_lines()]
    assert [line.get_linestyle() for line in lines] == ["None"] * 3
    assert [label.get_text() for label in drawn[0].axes[0].get_yticklabels()] == ["words", "tags"]
    assert lines[1].get_xdata().tolist() == [2.0, 1.5]


def test_a_path_that_cannot_be_written_is_a_setting_error(tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    for path, words in (
        (tmp_path / "absent" / "p.svg", "no folder"),
        (tmp_path / "folder.svg", "is a folder"),
        (tmp_path / "p.xyz", "Give .svg"),
    ):
        with pytest.raises(SettingError, match=words):
            plots.check_path(path)
        with pytest.raises(SettingError, match="cannot be written"):
            plots.dots(path, ["a"], {"one": {"b": [1.0]}}, "x")
