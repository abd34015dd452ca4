"""Times the policies on Zipf keys and prints a table: time, balance, bytes moved, entries.

    PYTHONPATH=python python bench/policies.py                    # 1M keys, 15 partitions, z = 0.85, table of
    3,000

The table in force is full: heavy keys of an earlier interval, dealt out level; since then a share `--drift`
of the thousand heaviest keys has changed places with keys drawn from all. Each repeat builds a new snapshot,
so nothing that a snapshot remembers is timed as free; the time to build it is shown apart. Times are of all
seeds and repeats together, by the clock and of this process; ratios compare medians of the latter, which a
busy machine hardly changes, with Mixed's. Mixed_BF plans once, on the first seed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skewless import policies
from skewless.model.plan import Plan
from skewless.model.snapshot import Snapshot
from skewless.model.table import Table
from skewless.policies import Limits

POLICIES = ("mixed", "compact", "min_mig", "min_table", "llfd", "simple", "readj", "mixed_bf")
SIGMAS = (0.1, 0.03, 0.01, 0.003, 0.001)


@dataclass(frozen=True)
class Case:
    """One seed's keys: a table in force, and the costs that have drifted away from it."""

    table: Table
    hashes: NDArray[np.int32]
    costs: NDArray[np.float64]
    state_bytes: NDArray[np.float64]

    def observe(self) -> Snapshot:
        return Snapshot.of(self.table, self.hashes, self.costs, self.state_bytes)


def main() -> None:
    args = _arguments()
    limits = Limits(args.max_imbalance, args.max_entries, degree=args.degree)
    cases = [case_of(args, limits, seed) for seed in args.seeds]
    before = [1 + case.observe().imbalance for case in cases]
    print(
        f"{args.keys} keys, {args.partitions} partitions, z={args.z}, max_imbalance={args.max_imbalance}, "
        f"max_entries={args.max_entries}, seeds {args.seeds}, {args.repeats} repeats each, numpy "
        f"{np.__version__}"
    )
    print(
        f"max/mean before: {min(before):.3f}..{max(before):.3f}; building a snapshot: "
        f"{ms(_times(cases, args.repeats))} ms"
    )
    print(
        "bytes: moved, in percent of all state; / MinTable: as a share of what MinTable moves; all "
        "[min..max] over the seeds"
    )
    print(
        f"{'policy':<13}{'ms median [min..max]':>26}{'CPU ms':>9}{'x mixed':>9}{'max/mean':>18}"
        f"{'bytes %':>14}{'/ MinTable':>14}{'entries':>12}  met"
    )
    run(args, cases, limits)


def case_of(args: argparse.Namespace, limits: Limits, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    hashes = np.unique(rng.integers(-(1 << 31), 1 << 31, args.keys).astype(np.int32))
    costs = rng.permutation(np.arange(1, len(hashes) + 1) ** -args.z)
    table = grown_table(args.partitions, hashes, costs, limits, rng)
    costs = drifted(costs, args.drift, rng)
    return Case(table, hashes, costs, costs * rng.uniform(0.5, 2.0, len(costs)) * 1e6)


def run(args: argparse.Namespace, cases: list[Case], limits: Limits) -> None:
    least = [policies.get("min_table")(case.observe(), case.table, limits).bytes_moved for case in cases]
    baseline = 0.0
    for name in args.policies:
        brute = name == "mixed_bf"  # minutes a plan: once, on the first seed
        settings = [replace(limits, sigma=sigma) for sigma in SIGMAS] if name == "readj" else [limits]
        for setting in settings:
            label = f"readj {setting.sigma}" if name == "readj" else "mixed_bf (1)" if brute else name
            some = cases[:1] if brute else cases
            timed_plans = [timed(name, case, setting, 1 if brute else args.repeats) for case in some]
            times = [time for times, _ in timed_plans for time in times]
            baseline = baseline or statistics.median(cpu for _, cpu in times)
            row(
                label,
                times,
                baseline,
                [(case, plan) for case, (_, plan) in zip(some, timed_plans, strict=True)],
                least,
            )


def timed(name: str, case: Case, limits: Limits, repeats: int) -> tuple[list[tuple[float, float]], Plan]:
    """Seconds by the clock and of this process, for each repeat, and the plan."""
    times = []
    for _ in range(repeats):
        snapshot = case.observe()
        started, cpu_started = time.perf_counter(), time.process_time()
        plan = policies.get(name)(snapshot, case.table, limits)
        times.append((time.perf_counter() - started, time.process_time() - cpu_started))
    return times, plan


def row(
    label: str,
    times: list[tuple[float, float]],
    baseline: float,
    plans: list[tuple[Case, Plan]],
    least: list[float],
) -> None:
    levels = [1 + plan.imbalance_after for _, plan in plans]
    shares = [100 * plan.bytes_moved / case.observe().total_bytes for case, plan in plans]
    against = [plan.bytes_moved / bound for (_, plan), bound in zip(plans, least, strict=False)]
    entries = [len(plan.table) for _, plan in plans]
    met, cpu = sum(plan.met for _, plan in plans), statistics.median(cpu for _, cpu in times)
    clock = ms([seconds for seconds, _ in times])
    print(
        f"{label:<13}{clock:>26}{1e3 * cpu:>9.1f}{cpu / baseline:>9.2f}"
        f"{min(levels):>10.4f}..{max(levels):.4f}{min(shares):>8.2f}..{max(shares):.2f}"
        f"{min(against):>8.2f}..{max(against):.2f}{min(entries):>6}..{max(entries)}"
        f"  {met} of {len(plans)}",
        flush=True,
    )


def ms(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f} [{1e3 * min(seconds):.1f}..{1e3 * max(seconds):.1f}]"


def grown_table(
    partitions: int,
    hashes: NDArray[np.int32],
    costs: NDArray[np.float64],
    limits: Limits,
    rng: np.random.Generator,
) -> Table:
    """A table as a drifting stream leaves it: full, or nearly so; its keys are heavy ones, its targets level
    them."""
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


def _times(cases: list[Case], repeats: int) -> list[float]:
    seconds = []
    for case in cases:
        for _ in range(repeats):
            started = time.perf_counter()
            case.observe()
            seconds.append(time.perf_counter() - started)
    return seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=15)
    parser.add_argument("--z", type=float, default=0.85)
    parser.add_argument("--max-imbalance", type=float, default=0.02)
    parser.add_argument("--max-entries", type=int, default=3000)
    parser.add_argument("--degree", type=int, default=8)
    parser.add_argument("--drift", type=float, default=0.3)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--policies", nargs="+", default=POLICIES, choices=policies.names())
    return parser.parse_args()


if __name__ == "__main__":
    main()
