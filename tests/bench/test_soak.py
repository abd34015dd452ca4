"""What the soak believes: that a wrong row is found, and that a line which rises is seen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.soak.memory import describe
from bench.soak.story import Story
from bench.soak.verdict import difference, judge


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """A query of two batches as plain Spark gives it."""
    for folder in ("out", "faults"):
        (tmp_path / folder).mkdir()
    for batch, rows in enumerate((["a", "b"], ["a", "c"])):
        (tmp_path / "out" / f"{batch}.json").write_text(json.dumps(rows))
    (tmp_path / "plain.json").write_text(json.dumps({0: ["a", "b"], 1: ["a", "c"]}))
    return tmp_path


@pytest.mark.parametrize("mode", ["update", "append"])
def test_every_wrong_row_is_found(played: Path, mode: str) -> None:
    assert judge(played, mode).wrong == ""
    for rows in (["a"], ["a", "b", "b"], ["a", "d"], []):
        (played / "out" / "0.json").write_text(json.dumps(rows))
        assert judge(played, mode).wrong != ""


def test_a_row_in_another_batch_is_wrong_where_each_batch_updates() -> None:
    found, expected = {0: ["a"], 1: ["b"]}, {0: ["a", "b"], 1: []}
    assert difference(found, expected, "update") != ""
    assert difference(found, expected, "append") == ""


def test_a_replay_that_differs_and_state_that_is_left_are_wrong(played: Path) -> None:
    (played / "replayed-otherwise-0.json").write_text("[]")
    (played / "checkpoint/_skewless/moves/3-1").mkdir(parents=True)
    wrong = judge(played, "update").wrong
    assert "replays differ" in wrong
    assert "left in" in wrong


def test_a_seed_tells_the_same_story() -> None:
    assert Story.of(7) == Story.of(7) != Story.of(8)
    assert [query.rows() for query in Story.of(7).queries] == [query.rows() for query in Story.of(7).queries]


def test_memory_that_rises_is_seen() -> None:
    flat = [{"batch": 40 * i, "heap kB": 50_000 + 100 * (i % 3)} for i in range(50)]
    leaking = [{"batch": s["batch"], "heap kB": s["heap kB"] + 2 * s["batch"]} for s in flat]
    assert not describe("heap kB", flat)
    assert describe("heap kB", leaking)
