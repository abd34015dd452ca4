"""Adds up the test reports of Python, Scala and the local cluster into one line, `N passed, N failed, N
skipped`."""

import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    reports = [*sorted(ROOT.glob("out/junit-*.xml")), *sorted(ROOT.glob("jvm/target/**/test-reports/*.xml"))]
    total = failed = skipped = 0
    for report in reports:
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            total += int(suite.get("tests", 0))
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped += int(suite.get("skipped", 0))
    print(f"{total - failed - skipped} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or total == 0 else 0)


main()
