"""Times the policies on Zipf keys and prints a table: time, balance, bytes moved, entries.

    PYTHONPATH=python python bench/policies.py                    # 1M keys, 15 partitions, z = 0.85, table of 3,000

The table in force is what Mixed made of an earlier interval; since then every `--drift` share of the heavy keys has
changed places with other keys. Each repeat builds a new snapshot, so nothing that a snapshot remembers is timed as free;
the time to build it is shown apart. Ratios compare medians with Mixed in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from skewless import policies
from skewless.plan import Plan
from skewless.policies import Limits
from skewless.snapshot import Snapshot
from skewless.table import Table

POLICIES = ("mixed", "compact", "min_mig", "min_table", "llfd", "simple", "readj", "mixed_bf")
SIGMAS = (0.1, 0.03, 0.01, 0.003, 0.001)


def main() -> None:
    args = _arguments()
    rng = np.random.default_rng(args.seed)
    hashes = np.unique(rng.integers(-(1 << 31), 1 << 31, args.keys).astype(np.int32))
    costs = rng.permutation(np.arange(1, len(hashes) + 1) ** -args.z)
    limits = Limits(args.max_imbalance, args.max_entries, degree=args.degree)
    table = grown_table(args.partitions, hashes, costs, limits, rng)
    costs = drifted(costs, args.drift, rng)
    state = costs * rng.uniform(0.5, 2.0, len(costs)) * 1e6

    def observe() -> Snapshot:
        return Snapshot.of(table, hashes, costs, state)

    print(
        f"{len(hashes)} keys, {args.partitions} partitions, z={args.z}, max_imbalance={args.max_imbalance}, "
        f"max_entries={args.max_entries}, table in force: {len(table)} entries, seed {args.seed}, numpy {np.__version__}"
    )
    print(f"max/mean before: {1 + observe().imbalance:.4f}; building the snapshot: {_times(observe, args.repeats)}")
    print(f"{'policy':<16}{'ms median [min..max]':>26}{'x mixed':>9}{'max/mean':>10}{'bytes %':>9}{'entries':>9}  met")
    run(args, observe, table, limits)


def run(args: argparse.Namespace, observe: object, table: Table, limits: Limits) -> None:
    baseline = 0.0
    for name in args.policies:
        repeats = 1 if name == "mixed_bf" else args.repeats
        settings = [replace(limits, sigma=sigma) for sigma in SIGMAS] if name == "readj" else [limits]
        for setting in settings:
            label = f"{name} {setting.sigma}" if name == "readj" else name
            seconds, plan = timed(name, observe, table, setting, repeats)
            baseline = baseline or statistics.median(seconds)
            row(label, seconds, baseline, plan, observe().total_bytes)  # type: ignore[operator]


def timed(name: str, observe: object, table: Table, limits: Limits, repeats: int) -> tuple[list[float], Plan]:
    seconds = []
    for _ in range(repeats):
        snapshot = observe()  # type: ignore[operator]
        started = time.perf_counter()
        plan = policies.get(name)(snapshot, table, limits)
        seconds.append(time.perf_counter() - started)
    return seconds, plan


def row(label: str, seconds: list[float], baseline: float, plan: Plan, total_bytes: float) -> None:
    median = statistics.median(seconds)
    spread = f"{1e3 * median:.1f} [{1e3 * min(seconds):.1f}..{1e3 * max(seconds):.1f}]"
    share = 100 * plan.bytes_moved / total_bytes
    print(
        f"{label:<16}{spread:>26}{median / baseline:>9.2f}{1 + plan.imbalance_after:>10.4f}{share:>9.2f}"
        f"{len(plan.table):>9}  {'yes' if plan.met else 'no: ' + plan.reasons[0]}",
        flush=True,
    )


def grown_table(
    partitions: int, hashes: NDArray[np.int32], costs: NDArray[np.float64], limits: Limits, rng: np.random.Generator
) -> Table:
    """A table as a drifting stream leaves it: full, or nearly so; its keys are heavy ones, its targets level them."""
    heavy = np.argsort(-costs)[: 2 * limits.max_entries]
    chosen = rng.choice(heavy, min(limits.max_entries, len(heavy)), replace=False)
    loads = np.bincount(hashes % partitions, weights=costs, minlength=partitions)
    loads -= np.bincount(hashes[chosen] % partitions, weights=costs[chosen], minlength=partitions)
    targets = []
    for at in chosen[np.argsort(-costs[chosen])].tolist():
        targets.append(int(np.argmin(loads)))
        loads[targets[-1]] += costs[at]
    return Table.of_moves(partitions, hashes[chosen[np.argsort(-costs[chosen])]], targets, epoch=1)


def drifted(costs: NDArray[np.float64], share: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """The same costs after a share of the thousand heaviest keys changed places with keys drawn from all."""
    costs = costs.copy()
    heavy = np.argsort(-costs)[:1000]
    leaving = rng.choice(heavy, int(share * len(heavy)), replace=False)
    coming = rng.choice(len(costs), len(leaving), replace=False)
    for old, new in zip(leaving.tolist(), coming.tolist(), strict=True):
        costs[old], costs[new] = costs[new], costs[old]
    return costs


def _times(call: object, repeats: int) -> str:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()  # type: ignore[operator]
        seconds.append(1e3 * (time.perf_counter() - started))
    return f"{statistics.median(seconds):.1f} ms [{min(seconds):.1f}..{max(seconds):.1f}]"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=15)
    parser.add_argument("--z", type=float, default=0.85)
    parser.add_argument("--max-imbalance", type=float, default=0.02)
    parser.add_argument("--max-entries", type=int, default=3000)
    parser.add_argument("--degree", type=int, default=8)
    parser.add_argument("--drift", type=float, default=0.3)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policies", nargs="+", default=POLICIES, choices=policies.names())
    return parser.parse_args()


if __name__ == "__main__":
    main()
