"""The rooms of the Scala half import each other one way; `docs/architecture.md` draws them."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

MAIN = Path(__file__).resolve().parent.parent / "jvm" / "src" / "main"
ROOTS = ("io.skewless", "org.apache.spark.sql.skewless")
PROVIDER = (
    "org.apache.spark.sql.skewless.SkewlessStateStoreProvider"  # a name at the root for what is in state
)


def room(name: str) -> str:
    """The room of a full name; empty for what stands at a root, or outside."""
    found = re.match(rf"({'|'.join(map(re.escape, ROOTS))})\.([a-z]+)(\.|$)", name)
    return found[2] if found else ""


def imports() -> dict[str, set[str]]:
    """Which rooms the files of each room import."""
    found: dict[str, set[str]] = {}
    for file in MAIN.rglob("*.scala"):
        text = file.read_text()
        package = re.search(r"^package (\S+)", text, re.MULTILINE)
        own = room(package[1]) if package else ""
        if not own:
            continue
        names = re.findall(r"^import (\S+)", text, re.MULTILINE)
        others = {"state" if name == PROVIDER else room(name) for name in names}
        found.setdefault(own, set()).update(others - {own, ""})
    return found


def test_no_room_imports_one_that_imports_it() -> None:
    order = list(TopologicalSorter(imports()).static_order())  # raises CycleError with the cycle
    assert {"table", "observe", "route", "query", "state"} <= set(order)


def test_what_is_outside_sparks_package_imports_nothing_from_inside_it() -> None:
    for name in ("table", "observe", "moves"):
        files = (MAIN / "scala" / "io" / "skewless" / name).glob("*.scala")
        assert not [file.name for file in files if "import org.apache.spark.sql.skewless" in file.read_text()]
