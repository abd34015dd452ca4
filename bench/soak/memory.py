"""Whether memory and files stay flat over many batches: lines fitted through what `steady` measures, of
Skewless and of plain Spark.

A line goes through the samples after the first 40 % of the batches, while classes are loaded and caches fill.
It rises if it gains more than `MOST_KB` per batch and more than twice its standard error.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

WARM_UP = 0.4
MOST_KB = 1.0  # 2 MB in 2,000 batches
FEWEST_SAMPLES = 6
WATCHED = ("driver heap kB", "executor heap kB")
FLAT_FILES = ("files in checkpoint", "files in checkpoint/_skewless", "files in local", "files in tmp")

Samples = list[dict[str, int]]


def memory(home: Path, environment: dict[str, str], batches: int, seconds: float) -> bool:
    """Both arms, each half of the time at most; true if ours is flat and leaves no more files behind."""
    ends, flat = {}, True
    for arm in ("ours", "plain"):
        folder = home / f"steady-{arm}"
        folder.mkdir()
        samples, ends[arm] = measure(arm, folder, environment, batches, seconds / 2)
        print(f"memory, {arm}: {ends[arm]}, {len(samples)} samples", flush=True)
        rises = [name for name in samples[-1] if name != "batch" and describe(name, samples)]
        if arm == "ours":
            flat = not [name for name in rises if name in (*WATCHED, *FLAT_FILES)]
    left = {arm: ends[arm]["files in local"] + ends[arm]["files in tmp"] for arm in ends}
    print(f"files left when the session has ended: {left}")
    print("memory is flat" if flat else "memory or files RISE", flush=True)
    return flat and left["ours"] <= left["plain"]


def measure(
    arm: str, folder: Path, environment: dict[str, str], batches: int, seconds: float
) -> tuple[Samples, dict[str, int]]:
    command = [sys.executable, "-m", "bench.soak.steady", arm, str(folder), str(batches), str(seconds)]
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, check=False
        )
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    told = {kind: [json.loads(rest) for word, rest in lines if word == kind] for kind in ("SAMPLE", "END")}
    if done.returncode != 0 or not told["END"] or not told["SAMPLE"]:
        raise SystemExit(f"the steady query of {arm} failed; see {folder / 'log'}")
    (folder / "samples.json").write_text(json.dumps(told["SAMPLE"]))
    return told["SAMPLE"], told["END"][0]


def describe(name: str, samples: Samples) -> bool:
    """Prints the line through one measure; true if it rises."""
    late = [
        sample for sample in samples if sample["batch"] >= WARM_UP * samples[-1]["batch"] and name in sample
    ]
    if len(late) < FEWEST_SAMPLES:
        print(f"  {name}: {samples[-1].get(name)} at the end; too few samples for a line")
        return False
    slope, error = line([sample["batch"] for sample in late], [sample[name] for sample in late])
    rises = slope > 2 * error and slope > (MOST_KB if name.endswith("kB") else 0.05)
    print(
        f"  {name}: {late[0][name]:,} -> {late[-1][name]:,}, {slope:+.3f} +- {error:.3f} per batch"
        f"{' RISES' if rises else ''}"
    )
    return rises


def line(x: list[int], y: list[int]) -> tuple[float, float]:
    """Slope of the least squares, and its standard error.

    >>> line([0, 1, 2, 3], [5, 7, 9, 11])
    (2.0, 0.0)
    """
    xs, ys = np.asarray(x, float) - np.mean(x), np.asarray(y, float) - np.mean(y)
    slope = float(xs @ ys / (xs @ xs))
    rest = ys - slope * xs
    return round(slope, 6), round(float(np.sqrt(rest @ rest / (len(x) - 2) / (xs @ xs))), 6)
