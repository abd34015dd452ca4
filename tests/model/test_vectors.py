"""Python's tables agree with the vectors that the JVM is held to (`TableVectorsSuite`)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewless.model.table import Change, Table, compose, diff

HERE = Path(__file__).parent.parent / "vectors"
VECTORS: dict[str, Any] = json.loads((HERE / "tables.json").read_text())
TABLES = VECTORS["tables"]


def table_of(vector: dict[str, Any]) -> Table:
    entries = {key_hash: tuple(targets) for key_hash, targets in vector["entries"]}
    return Table(vector["partitions"], entries, vector["epoch"])


def test_the_vectors_cover_moves_splits_and_plain_hashing() -> None:
    assert len(TABLES) >= 40
    assert any(not vector["entries"] for vector in TABLES)
    assert any(len(targets) > 2 for vector in TABLES for _, targets in vector["entries"])
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
        (d["older"], d["newer"]): [Change(h, tuple(b), tuple(a)) for h, b, a in d["changes"]]
        for d in VECTORS["diffs"]
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
