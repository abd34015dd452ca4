"""Random queries, keys, tables, kills and restarts against plain Spark, and whether memory stays flat.

    .venv/bin/python -m bench.soak --minutes 60 [--seed 1234] [--part rounds|memory]

A round that fails prints its seed and keeps its folder; `--seed SEED --rounds 1 --part rounds` plays the same
story again. When a kill strikes is a matter of the clock, so a failure that needs one may not come again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from bench.soak.memory import memory
from bench.soak.nemesis import Nemesis, RoundError
from bench.soak.story import Story
from bench.soak.verdict import judge

MEMORY_SHARE = 0.4  # of the time, at most, if both parts are played
ROOT = Path(__file__).resolve().parents[2]


class Plain:
    """The process that plays plain Spark, one query after the other."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.soak.plain"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True,
            )  # fmt: skip
        self.log = log

    def play(self, seed: int, number: int, home: Path) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(seed, number, home, file=self.process.stdin, flush=True)
        if not self.process.stdout.readline().startswith("done"):
            raise RoundError(f"plain Spark did not play {home}; see {self.log}")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def play_round(seed: int, home: Path, plain: Plain, environment: dict[str, str], total: Counter[str]) -> bool:
    """Whether every query of the round gave what plain Spark gives."""
    story, started, right = Story.of(seed), time.monotonic(), True
    folder = home / f"round-{seed}"
    folder.mkdir()
    nemesis = Nemesis(folder, story, environment)
    print(f"round {seed}{', local cluster' if story.cluster else ''}", flush=True)
    try:
        nemesis.run()
        for number, query in enumerate(story.queries):
            place = folder / f"query-{number}"
            plain.play(seed, number, place)
            verdict = judge(place, query.operator.mode)
            facts = Counter(batches=verdict.batches, rows=verdict.rows, swaps=verdict.swaps)
            facts.update({"task failures": verdict.faults} | verdict.done)
            total.update({"queries": 1} | facts)
            words = ", ".join(f"{times} {what}" for what, times in facts.items() if times)
            print(f"  {query.name}: {words}: {verdict.wrong or 'rows as plain'}", flush=True)
            right &= not verdict.wrong
    except RoundError as failure:
        print(f"  FAILED: {failure}", flush=True)
        right = False
    total.update({"rounds": 1} | nemesis.done)
    print(f"  {nemesis.done}, {time.monotonic() - started:.0f} s", flush=True)
    if right:
        shutil.rmtree(folder)
    else:
        print(f"  WRONG. Seed {seed}; kept in {folder}", flush=True)
    return right


def rounds(options: argparse.Namespace, home: Path, environment: dict[str, str], until: float) -> bool:
    random, total, wrong = Random(options.seed), Counter[str](), []
    plain = Plain(environment, home / "plain.log")
    number = 0
    while number < options.rounds if options.rounds else time.monotonic() < until:
        seed = options.seed if number == 0 else random.randrange(1 << 30)
        number += 1
        if not play_round(seed, home, plain, environment, total):
            wrong.append(seed)
    plain.end()
    print("rounds:", ", ".join(f"{times:,} {what}" for what, times in sorted(total.items()) if times))
    print(f"wrong: {wrong}" if wrong else "every row is plain Spark's")
    return not wrong


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    asked.add_argument("--minutes", type=float, default=60)
    asked.add_argument("--seed", type=int, default=Random().randrange(1 << 30))
    asked.add_argument("--rounds", type=int, default=0, help="so many, whatever the time")
    asked.add_argument("--part", choices=("rounds", "memory", "both"), default="both")
    asked.add_argument("--batches", type=int, default=2000, help="that memory is watched for, per arm")
    options = asked.parse_args()
    print(f"seed {options.seed}", flush=True)
    path = os.pathsep.join(filter(None, [str(ROOT / "python"), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path}
    home, started = Path(tempfile.mkdtemp(prefix="skewless-soak-")), time.monotonic()
    right = True
    if options.part != "rounds":
        share = 1 if options.part == "memory" else MEMORY_SHARE
        right &= memory(home, environment, options.batches, options.minutes * 60 * share)
    if options.part != "memory":
        right &= rounds(options, home, environment, started + options.minutes * 60)
    if right:
        shutil.rmtree(home)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
