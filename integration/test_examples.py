"""Every script of `examples/` on few rows and without waits: the plain twin gives the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from integration.conftest import ROOT

FOLDER = ROOT / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "side_by_side")


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module(request.param)
    cloudpickle.register_pickle_by_value(module)  # executors do not know the folder
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    sys.modules.pop(request.param)


RARE = ("heavy_hitters",)  # as long as all others together
CASES = [pytest.param(name, marks=pytest.mark.rare if name in RARE else ()) for name in NAMES]


@pytest.mark.parametrize("example", CASES, indirect=True)
def test_an_example_and_its_plain_twin_give_the_same(spark: SparkSession, example: Any) -> None:
    made = example.levelled(spark, 1200, 0.0)
    assert len(made) > 3
    assert made == example.plain(spark, 1200, 0.0)


def test_every_example_has_its_line_in_the_readme() -> None:
    readme = (FOLDER / "README.md").read_text()
    assert [name for name in NAMES if f"({name}.py)" not in readme] == []
