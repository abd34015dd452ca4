"""Python's tables agree with the vectors that the JVM is held to (`TableVectorsSuite`)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewless.model.split import Split
from skewless.model.table import Change, Table, compose, diff

HERE = Path(__file__).parent.parent / "vectors"
VECTORS: dict[str, Any] = json.loads((HERE / "tables.json").read_text())
TABLES = VECTORS["tables"]


def table_of(vector: dict[str, Any]) -> Table:
    entries = {
        key_hash: Split(tuple(targets), *rows) if rows else tuple(targets)
        for key_hash, targets, *rows in vector["entries"]
    }
    return Table(vector["partitions"], entries, vector["epoch"])


def change_of(
    key_hash: int, before: list[int], after: list[int], old_rows: int = 0, new_rows: int = 0
) -> Change:
    def side(targets: list[int], rows: int) -> tuple[int, ...] | Split:
        return Split(tuple(targets), rows) if rows not in (0, len(targets)) else tuple(targets)

    return Change(key_hash, side(before, old_rows), side(after, new_rows))


def test_the_vectors_cover_moves_splits_and_plain_hashing() -> None:
    assert len(TABLES) >= 40
    assert any(not vector["entries"] for vector in TABLES)
    assert any(len(targets) > 2 for vector in TABLES for _, targets, *_ in vector["entries"])
    assert any(rows for vector in TABLES for _, _, *rows in vector["entries"])
    assert any(rows for step in VECTORS["diffs"] for _, _, _, *rows in step["changes"])
    assert len(VECTORS["diffs"]) >= 20


@pytest.mark.parametrize("vector", TABLES, ids=lambda v: f"n{v['partitions']}-epoch{v['epoch']}")
def test_a_table_encodes_to_the_recorded_bytes_and_back(vector: dict[str, Any]) -> None:
    table = table_of(vector)
    assert table.encode().hex() == vector["encoded"]
    assert table.digest == vector["digest"]
    assert Table.decode(bytes.fromhex(vector["encoded"])) == table


@pytest.mark.parametrize("vector", TABLES, ids=lambda v: f"n{v['partitions']}-epoch{v['epoch']}")
def test_a_table_routes_as_recorded(vector: dict[str, Any]) -> None:
    table = table_of(vector)
    for row in vector["routes"]:
        contents = None if row["content"] is None else np.array([row["content"]])
        assert table.route([row["hash"]], row["mapPartition"], row["mappers"], contents)[0] == row["target"]
        assert row["target"] in table.targets(row["hash"])


def test_neighbours_differ_as_recorded_and_the_steps_compose() -> None:
    tables = [table_of(vector) for vector in TABLES]
    steps = {
        (d["older"], d["newer"]): [change_of(*change) for change in d["changes"]] for d in VECTORS["diffs"]
    }
    for (older, newer), changes in steps.items():
        assert diff(tables[older], tables[newer]) == changes
        following = steps.get((newer, newer + 1))
        if following is not None:
            assert compose(changes, following) == diff(tables[older], tables[newer + 1])


def test_the_file_is_what_its_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("make_tables", HERE / "make_tables.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.text() == (HERE / "tables.json").read_text()
