"""One short round of `make soak`, as it is and with one row of each batch lost on purpose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench.soak.play import BREAK

from integration.conftest import ROOT

SEED = "11"


@pytest.mark.rare
@pytest.mark.parametrize("broken", [False, True])
def test_a_round_finds_a_lost_row_and_nothing_else(tmp_path: Path, broken: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--part", "rounds", "--rounds", "1", "--seed", SEED],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)} | ({BREAK: "yes"} if broken else {}),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == int(broken)
    assert ("missing, such as" in done.stdout) == broken
    assert ("rows as plain" in done.stdout) != broken
    kept = list(tmp_path.glob("skewless-soak-*/round-*"))
    assert bool(kept) == broken  # for whoever wants to look
    for folder in kept:
        shutil.rmtree(folder)
