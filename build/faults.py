"""docs/faults.md, made from the reports of the Scala suites: which operator went through which fault, in which checkpoint format.

Run by `make faults`, after the suites with the full matrix. A cell says the formats that passed; a failure is said as such.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

REPORTS = Path("jvm/target/test-reports")
PAGE = Path("docs/faults.md")
NAME = re.compile(r"(?:(?P<fault>.+?): )?(?P<operator>.+), checkpoint format (?P<format>\d)$")


def main() -> None:
    cells: dict[str, dict[str, set[str]]] = {}
    faults: list[str] = []
    failed = 0
    for suite in ("StateSwapSuite", "StateCrashSuite", "StateFaultSuite"):
        report = next(REPORTS.glob(f"*{suite}.xml"), None)
        if report is None:
            sys.exit(f"{REPORTS} has no report of {suite}. Run `make faults`.")
        for case in ET.parse(report).getroot().iter("testcase"):
            found = NAME.match(case.attrib["name"])
            if not found:
                continue
            fault = found["fault"] or "swap, no fault"
            if fault not in faults:
                faults.append(fault)
            bad = case.find("failure") is not None or case.find("error") is not None
            failed += bad
            mark = f"v{found['format']}" + (" FAILED" if bad else "")
            cells.setdefault(found["operator"], {}).setdefault(fault, set()).add(mark)
    PAGE.write_text(_page(cells, faults))
    print(f"{PAGE}: {len(cells)} operators, {len(faults)} faults, {failed} failed")


def _page(cells: dict[str, dict[str, set[str]]], faults: list[str]) -> str:
    lines = [
        "# Operators and faults",
        "",
        "Made by `make faults` from the reports of the suites; do not edit by hand. Each cell is a run of the operator",
        "with tables swapped while the fault strikes, on real RocksDB stores, its rows compared batch by batch with plain",
        "Spark's; v1 and v2 are the checkpoint formats. An empty cell was not run. Executors killed on a real cluster are in",
        "`integration/test_state.py`.",
        "",
        "Faults:",
        "",
        *(f"{i}. {fault}" for i, fault in enumerate(faults, 1)),
        "",
        "| operator | " + " | ".join(str(i) for i in range(1, len(faults) + 1)) + " |",
        "|---" * (len(faults) + 1) + "|",
    ]
    for operator in sorted(cells):
        row = [" ".join(sorted(cells[operator].get(fault, ()))) for fault in faults]
        lines.append(f"| {operator} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
