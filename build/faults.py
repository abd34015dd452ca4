"""docs/faults.md, made from the reports of the Scala suites: which operator went through which fault, in
which checkpoint format.

Run by `make faults`, after the suites with the full matrix; with folders as arguments, from the reports in
those, and with --note a sentence about them. A cell says the formats that passed; a failure is said as such.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

REPORTS = [Path("jvm/target/test-reports")]
SUITES = ("StateSwapSuite", "StateCrashSuite", "StateFaultSuite", "StateZombieSuite")
PAGE = Path("docs/faults.md")
NAME = re.compile(
    r"(?:(?P<fault>.+?): )?(?P<operator>.+), checkpoint format (?P<format>\d)(?:, (?:carried|in files))?$"
)
FORMATS = 2
PROTOCOL = (
    "offset log",
    "before the table",
    "temporary file",
    "before the pin",
    "after the pin",
    "map",
    "export",
    "some",
    "all",
    "commit log",
    "purge",
)

Cells = dict[str, dict[str, dict[str, bool]]]  # operator -> fault -> format -> passed


def main(folders: list[Path], note: str) -> None:
    cells: Cells = {}
    faults: list[str] = []
    for suite in SUITES:
        reports = [report for folder in folders for report in sorted(folder.glob(f"*{suite}*.xml"))]
        if not reports:
            sys.exit(f"{', '.join(map(str, folders))}: no report of {suite}. Run `make faults`.")
        for report in reports:
            _read(report, cells, faults)
    PAGE.write_text(_page(cells, sorted(faults, key=_moment), note))
    failed = sum(
        not passed
        for by_fault in cells.values()
        for by_format in by_fault.values()
        for passed in by_format.values()
    )
    print(f"{PAGE}: {len(cells)} operators, {len(faults)} faults, {failed} failed")


def _read(report: Path, cells: Cells, faults: list[str]) -> None:
    for case in ET.parse(report).getroot().iter("testcase"):
        found = NAME.match(case.attrib["name"])
        if not found or case.find("skipped") is not None:
            continue
        fault = found["fault"] or "swap, no fault"
        if fault not in faults:
            faults.append(fault)
        passed = case.find("failure") is None and case.find("error") is None
        by_format = cells.setdefault(found["operator"], {}).setdefault(fault, {})
        by_format[found["format"]] = passed and by_format.get(found["format"], True)  # in both ways, or one


def _moment(fault: str) -> int:
    """Drivers die in the order of the protocol; what has no place in it stays where it was met."""
    if fault.startswith("swap"):
        return -1
    return next(
        (i for i, word in enumerate(PROTOCOL) if fault.startswith("driver") and word in fault), len(PROTOCOL)
    )


def _page(cells: Cells, faults: list[str], note: str) -> str:
    run = sum(len(by_format) for by_fault in cells.values() for by_format in by_fault.values())
    lines = [
        "# Operators and faults",
        "",
        "Made by `make faults` from the reports of the suites; do not edit by hand. Each cell is a run of "
        "the operator",
        "with tables swapped while the fault strikes, on real RocksDB stores, its rows compared batch by "
        "batch with plain",
        f"Spark's; v1 and v2 are the checkpoint formats. This page holds {run} runs of the "
        f"{len(cells) * len(faults) * FORMATS}",
        "that every operator, fault and format would make; an empty cell was not run. Python's operators, "
        "executors killed on a",
        "real cluster, speculation and executors with another jar are in `integration/test_state.py` and",
        "`integration/test_state_faults.py`.",
        *(["", note] if note else []),
        "",
        "Faults:",
        "",
        *(f"{i}. {fault}" for i, fault in enumerate(faults, 1)),
        "",
        "| operator | " + " | ".join(str(i) for i in range(1, len(faults) + 1)) + " |",
        "|---" * (len(faults) + 1) + "|",
    ]
    for operator in sorted(cells):
        row = [_cell(cells[operator].get(fault, {})) for fault in faults]
        lines.append(f"| {operator} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _cell(by_format: dict[str, bool]) -> str:
    return " ".join(
        f"v{number}" + ("" if passed else " FAILED") for number, passed in sorted(by_format.items())
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path, default=REPORTS)
    parser.add_argument("--note", default="")
    arguments = parser.parse_args()
    main(arguments.folders, arguments.note)
