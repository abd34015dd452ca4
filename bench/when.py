"""docs/when.md: when Skewless pays and when it does not, from the lines that `bench/streams.py --json` wrote.

    python bench/streams.py --data DIR --seconds 2 --batches 8 --json streams.jsonl \\
        --arms plain:1 plain:2 plain:4 plain:8 past:1 ahead:1
    python bench/when.py streams.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from pages.page import Page

DOCS = Path(__file__).parent.parent / "docs"
NAMES = {"plain": "plain Spark", "past": "Skewless", "ahead": "look ahead"}
LEVEL = 0.9  # of perfect: above it there is little to gain

Line = dict[str, Any]


def main(files: list[Path]) -> None:
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    page = Page("when", DOCS, "python bench/streams.py --json FILE ..., then python bench/when.py FILE")
    page.text("# When it pays")
    page.lines += ["| your query | what to do |", "|---|---|", *(f"| {a} | {b} |" for a, b in ADVICE), ""]
    page.text(
        "`skewless advise FILE --key k --workers 8` says from your own keys where you are.", "## Measured"
    )
    for key in dict.fromkeys((line["slots"], line["seconds"], line["burn"]) for line in lines):
        _run(page, [line for line in lines if (line["slots"], line["seconds"], line["burn"]) == key])
    page.write()


def _run(page: Page, lines: list[Line]) -> None:
    slots, seconds, burn = lines[0]["slots"], lines[0]["seconds"], lines[0]["burn"]
    arms = [arm for arm in lines[0] if ":" in arm]
    work = "take processor time" if burn else "wait"
    page.text(
        f"### {slots} slots, {seconds:g} s a level batch, rows that {work}",
        "Share of perfect, in time: what a level batch's rows take, over what the batch took, with all that "
        "looks, plans and swaps cost; median of the batches. *Bound* is what the hottest key alone allows.",
    )
    shares = {arm: [median(line[arm]["time"]) for line in lines] for arm in arms}
    rows = [
        [line["stream"].replace("_", " "), f"{line['bound']:.2f}", *_cells(line, arms, shares, i)]
        for i, line in enumerate(lines)
    ]
    page.table(["stream", "bound", *(_title(arm, slots) for arm in arms), "rows", "clock off"], rows)
    name = f"{'burn' if burn else 'wait'}-{slots}-{seconds:g}"
    marks = {"": {_title(arm, slots): shares[arm] for arm in arms}}
    page.dots(name, [line["stream"].replace("_", " ") for line in lines], marks, "share of perfect, in time")
    page.text(_verdict(lines, arms, shares))


def _cells(line: Line, arms: list[str], shares: dict[str, list[float]], i: int) -> list[str]:
    best = max(shares[arm][i] for arm in arms)
    figures = [f"{shares[arm][i]:.2f}" for arm in arms]
    same = "same" if all(line[arm]["same"] for arm in arms) else "DIFFER"
    clocks = [line[arm]["clock"] for arm in arms if line[arm]["clock"] is not None]
    off = ", ".join(f"{clock:.0%}" for clock in clocks) or "-"
    marked = [f"**{f}**" if shares[arm][i] == best else f for f, arm in zip(figures, arms, strict=True)]
    return [*marked, same, off]


def _title(arm: str, slots: int) -> str:
    way, _, times = arm.partition(":")
    return f"{NAMES[way]}, n = {slots * int(times)}"


def _verdict(lines: list[Line], arms: list[str], shares: dict[str, list[float]]) -> str:
    plain, ours = ([a for a in arms if a.startswith("plain") == is_plain] for is_plain in (True, False))
    said = []
    for way in ours:
        pairs = [(max(shares[a][i] for a in plain), shares[way][i]) for i in range(len(lines))]
        uneven = [(p, o) for p, o in pairs if p < LEVEL]
        level = [(p, o) for p, o in pairs if p >= LEVEL]
        ahead, kept = sum(o > p for p, o in uneven), sum(o >= 0.98 * p for p, o in level)
        said.append(
            f"{_title(way, lines[0]['slots'])}: ahead of the best plain arm on {ahead} of the {len(uneven)} "
            f"streams where that arm is below {LEVEL} of perfect; at least 0.98 of it on {kept} of the other "
            f"{len(level)}."
        )
    return (
        " ".join(said) + " The best plain arm is known in hindsight only: it differs from stream to stream."
    )


ADVICE = [
    (
        "batches wait for their heaviest partition, many keys, about as many partitions as task slots",
        "`skewless.balance(spark)`",
    ),
    (
        "the same, the hot keys are others in each batch, and batches take several seconds",
        "`skewless.balance(spark, look_ahead=True)`",
    ),
    (
        "batches of a second or less, or several times as many partitions as slots",
        "leave it: the scheduler levels much by itself, and a swap costs part of a batch",
    ),
    ("a stream-stream join, and one key alone has more than a fair share (1 / slots of the rows)", "splits"),
    ("a group with such a key, and you can merge partial results", "`skewless.aggregate`"),
    (
        "such a key in a step that keeps one state per key",
        "no table helps that key: *bound* below says how far the rest can be levelled",
    ),
    (
        "`groupBy().count()` and other aggregates of Spark's own",
        "leave it: Spark adds up each key in its map task first",
    ),
    ("batches that are level already", "leave it: Skewless watches and does nothing"),
]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main([Path(file) for file in sys.argv[1:]])
