"""The code of docs/policies.md runs, and what the page names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skewless import policies
from skewless.model.limits import Limits
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import groups, splits
from skewless.simulate import NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "policies.md").read_text()


@pytest.fixture
def shown() -> Iterator[dict[str, Any]]:
    """The names that the page's code makes, run from top to bottom as a reader would."""
    made: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, made)
    yield made
    policies._POLICIES.pop("one_key")
    splits._POLICIES.pop("three")


def test_the_ten_line_policy_levels_in_the_simulator(shown: dict[str, Any]) -> None:
    assert shown["level"].max_over_mean < shown["plain"].max_over_mean
    assert shown["level"].costs.table_entries > 0


def test_the_ten_line_policy_is_known_by_its_name(shown: dict[str, Any]) -> None:
    table = Table(2)
    plan = policies.get("one_key")(Snapshot.of(table, [0, 2], [40.0, 40.0]), table, Limits())
    assert (plan.imbalance_before, plan.imbalance_after) == (1.0, 0.0)


def test_the_ten_line_policy_stands_the_battery(tmp_path: Path) -> None:
    """As the page says to run it."""
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def one_key" in block
    )
    (tmp_path / "my_module.py").write_text(code)
    battery = ["tests/policies/test_battery.py", "-k", "one_key", "--policy", "my_module:one_key"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *battery],
        cwd=ROOT,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert re.search(r"\b10 passed", done.stdout), done.stdout + done.stderr
    assert done.returncode == 0, done.stdout


def test_every_name_and_file_of_the_page_exists_and_none_is_missing() -> None:
    rows = re.findall(r"^\|.*\| `(\w+\.py)` \|(.*)\|$", PAGE, re.MULTILINE)
    rooms = ("policies", "policies/splits", "policies/groups", "simulate/schemes")
    folders = [ROOT / "python" / "skewless" / room for room in rooms]
    for file, _ in rows:
        assert any((folder / file).exists() for folder in folders), file
    named = {name for _, names in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert named == set(NAMES) | set(policies.names()) | set(groups.names())


def test_every_split_policy_is_on_the_page_with_its_file() -> None:
    rows = dict(re.findall(r"^\|.*\| `(\w+)\.py` \| (\w+) \|$", PAGE, re.MULTILINE))
    assert set(rows) == set(rows.values()) == set(splits.names())


def test_a_name_is_given_once_and_to_a_function() -> None:
    with pytest.raises(policies.PolicyError, match="already"):
        policies.register("mixed", lambda *_: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(policies.PolicyError, match="Give a function"):
        policies.register("mine", "mixed")  # type: ignore[arg-type]
    with pytest.raises(policies.PolicyError, match="cannot be called"):
        policies.register("my policy", policies.get("mixed"))
