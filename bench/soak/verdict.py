"""Compares what a query gave, batch by batch, with what plain Spark gives for the same batches; and says what
happened to the query."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

Rows = list[str]


@dataclass(frozen=True)
class Verdict:
    """`wrong` is empty if every row is plain Spark's."""

    wrong: str
    batches: int
    rows: int
    swaps: int
    faults: int
    done: Counter[str]


def judge(home: Path, mode: str) -> Verdict:
    """The query in `home`, of which `plain.json` has what is right."""
    found = {int(path.stem): json.loads(path.read_text()) for path in (home / "out").glob("*.json")}
    expected = {int(batch): rows for batch, rows in json.loads((home / "plain.json").read_text()).items()}
    swaps = [json.loads(path.read_text()) for path in (home / "checkpoint/_skewless/swaps").glob("[0-9]*")]
    done = sum((Counter(json.loads(path.read_text())) for path in home.glob("done-*.json")), Counter[str]())
    return Verdict(
        wrong="; ".join(
            filter(None, [difference(found, expected, mode), otherwise(home), left_behind(home)])
        ),
        batches=len(found),
        rows=sum(map(len, expected.values())),
        swaps=sum(swap["rows"] > 0 for swap in swaps),
        faults=sum(1 for _ in (home / "faults").iterdir()),
        done=done,
    )


def difference(found: dict[int, Rows], expected: dict[int, Rows], mode: str) -> str:
    """In update mode the batches that have rows must be the same, one after the other. What a watermark lets
    go in append mode may come in a batch without input or in the next with input, so there all rows count.

    >>> difference({0: ["a"], 2: ["b"]}, {0: ["a"], 1: ["b"]}, "update")
    ''
    >>> difference({0: ["a", "b"]}, {0: ["a"], 1: ["b"]}, "append")
    ''
    >>> difference({0: ["a"]}, {0: ["a", "a"]}, "append")
    "1 missing, such as ['a']; 0 too many, such as []"
    """
    if mode == "update":
        ours, theirs = ([rows for _, rows in sorted(side.items()) if rows] for side in (found, expected))
        if len(ours) != len(theirs):
            return f"{len(ours)} batches with rows, and {len(theirs)} of plain Spark"
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            if words := _apart(our, their):
                return f"batch {number} of those with rows: {words}"
        return ""
    return _apart(*([row for rows in side.values() for row in rows] for side in (found, expected)))


def _apart(found: Rows, expected: Rows) -> str:
    ours, theirs = Counter(found), Counter(expected)
    if ours == theirs:
        return ""
    missing, more = (sorted((a - b).elements()) for a, b in ((theirs, ours), (ours, theirs)))
    return f"{len(missing)} missing, such as {missing[:3]}; {len(more)} too many, such as {more[:3]}"


def otherwise(home: Path) -> str:
    """Batches that gave other rows when they ran again."""
    names = sorted(path.name for path in home.glob("replayed-otherwise-*"))
    return f"replays differ: {names}" if names else ""


def left_behind(home: Path) -> str:
    """State on its way to another partition lives for one batch."""
    moves = home / "checkpoint/_skewless/moves"
    left = sorted(path.name for path in moves.iterdir()) if moves.exists() else []
    return f"left in {moves}: {left[:5]}" if left else ""
