"""The page of the Mixed paper: the table policies on its fluctuating Zipf, through the controller that Spark uses."""

# ruff: noqa: E501 - prose

from __future__ import annotations

from pathlib import Path

from pages.page import Page, real, run_all
from skewless.simulate import Cluster, fluctuating, in_memory
from skewless.simulate.tables import POLICIES

WORKERS, INTERVAL = 15, 200_000
SHOWN = [policy for policy in POLICIES if policy != "compact"]


def build(page: Page, data: Path | None) -> None:
    page.text(
        "# Mixed and its rivals (Fang et al.), run again",
        f"Zipf z=0.85 over 100,000 keys (1M in the paper), {WORKERS} workers, a table of at most 3,000 entries, planning after each interval "
        f"of {INTERVAL:,} tuples, max_imbalance 0.08, window 5: the paper's Table II. A plan made from one interval routes the next. "
        "*Batches* is the time of all intervals against perfect balance; *moved* is the state moved, as a share of all tuples.",
    )
    streams = {
        f"f={f:g}": in_memory(fluctuating(4_000_000, keys=100_000, f=f, interval=INTERVAL, workers=WORKERS)) for f in (0.2, 1.0)
    }
    streams |= {s.label: s for name in ("congress_tags", "askubuntu_tags") if (s := real(data, name)) is not None}
    specs = {"hash": "hash", **{policy: f"{policy}:interval={INTERVAL}" for policy in SHOWN}, "PKG (splits)": "pkg"}
    got = run_all(
        {(name, s): (stream, spec, Cluster(WORKERS, 10)) for name, stream in streams.items() for s, spec in specs.items()}
    )
    for name in streams:
        page.text(f"## {name}")
        rows = []
        for s in specs:
            r = got[name, s]
            ms = f"{r.costs.plan_ms / r.costs.plans:.0f}" if r.costs.plans else "-"
            rows.append([s, f"{r.batch_stretch:.3f}", f"{r.costs.moved_state / r.tuples:.1%}", r.costs.table_entries or "-", ms])
        page.table(["scheme", "batches", "moved", "entries", "ms a plan"], rows)
    level = {name: (got[name, "hash"].batch_stretch, got[name, "mixed"].batch_stretch) for name in streams}
    page.claim(
        all(mixed - 1 <= 0.6 * (plain - 1) for plain, mixed in level.values()),
        "a small table on top of hashing keeps the workers level under fluctuation.",
        "; ".join(f"{name}: {plain:.2f} with hashing, {mixed:.2f} with Mixed" for name, (plain, mixed) in level.items())
        + ". A plan is made from the interval before, so what fluctuates from one to the next stays, and the first interval is always hashed; with askubuntu tags there are only four intervals.",
    )
    more = {name: got[name, "llfd"].costs.moved_state / max(1.0, got[name, "mixed"].costs.moved_state) for name in streams}
    page.claim(
        all(ratio >= 0.95 for ratio in more.values()),
        "Mixed moves less state than a plan that starts from scratch.",
        "LLFD alone moves " + ", ".join(f"{ratio:.2f} times as much ({name})" for name, ratio in more.items()) + ".",
    )
