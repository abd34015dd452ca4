"""The page of the FISH paper: execution time and memory, alpha and theta, each part with and without,
changing workers."""

# ruff: noqa: E501 - prose

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from pages.fish_rivals import d_choices, elsewhere
from pages.page import Page, real, run_all
from skewless.simulate import Cluster, Result, WorkerChange, drifting_zipf, in_memory
from skewless.simulate.schemes.space_saving import SpaceSaving
from skewless.simulate.streams.stream import Numbered

WORKERS = (16, 32, 64, 128)
SKEWS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
TUPLES, SOURCES = 5_000_000, 8
RIVALS = {"PKG": "pkg", "D-C": "d-choices", "W-C": "w-choices", "FISH": "fish"}

Value = Callable[[Result], float]


@cache
def stream(z: float) -> Numbered:
    """The paper's drifting Zipf with its 10^5 keys: one of its rounds of 5M tuples."""
    made = in_memory(drifting_zipf(TUPLES, z=z, round_tuples=TUPLES))
    made.label = f"z={z:g}"
    return made


def cluster(n: int, **options: object) -> Cluster:
    return Cluster(n, SOURCES, utilisation=1.0, **options)  # type: ignore[arg-type]


def build(page: Page, data: Path | None) -> None:
    page.text(
        "# FISH (Huang), run again",
        "The paper's synthetic stream: 10^5 keys, Zipf z for 80 % of the tuples, then with the ranks "
        f"reversed for 20 %; {TUPLES:,} tuples (the paper has ten such rounds with other seeds; here one, "
        f"unless said). {SOURCES} sources (the paper does not say how many its simulation has). Tuples "
        "arrive at exactly the rate that all workers together can serve, so every imbalance, even a passing "
        "one, lengthens the execution. MemeTracker and Amazon reviews cannot be had; where real streams are "
        "named they are ours. Times are simulated, and are ratios to shuffle grouping (SG); memory is "
        "relative to key grouping (FG).",
    )
    rivals(page)
    real_streams(page, data)
    alpha(page)
    theta(page)
    classes(page)
    inference(page)
    ring(page)
    latency(page)
    hot_share(page)


DONE: dict[tuple[str, float, int], Result] = {}  # sections share runs


def sweep(specs: dict[str, str], skews: tuple[float, ...] = SKEWS) -> dict[tuple[str, float, int], Result]:
    everything = {**specs, "SG": "shuffle"}
    wanted = {(spec, z, n) for spec in everything.values() for z in skews for n in WORKERS} - DONE.keys()
    DONE.update(run_all({(spec, z, n): (stream(z), spec, cluster(n)) for spec, z, n in sorted(wanted)}))
    return {
        (name, z, n): DONE[spec, z, n] for name, spec in everything.items() for z in skews for n in WORKERS
    }


def draw(
    page: Page,
    name: str,
    got: dict[tuple[str, float, int], Result],
    specs: dict[str, str],
    y: str,
    value: Value,
) -> None:
    curves = {f"{n} workers": {s: [(z, value(got[s, z, n])) for z in SKEWS] for s in specs} for n in WORKERS}
    page.plot(name, curves, "z", y, log_y=True)


def time_of(got: dict[tuple[str, float, int], Result]) -> dict[tuple[str, float, int], float]:
    return {
        key: result.execution_seconds / got["SG", key[1], key[2]].execution_seconds
        for key, result in got.items()
    }


def rivals(page: Page) -> None:
    got = sweep({**RIVALS, "FG": "hash"})
    times = time_of(got)
    page.text("## Figures 10 and 11: execution time against SG, memory against FG")
    curves = {f"{n} workers": {s: [(z, times[s, z, n]) for z in SKEWS] for s in RIVALS} for n in WORKERS}
    page.plot("time", curves, "z", "execution time / SG", log_y=True)
    draw(page, "memory", got, {**RIVALS, "SG": "shuffle"}, "memory / FG", lambda result: result.memory_ratio)
    worst = max(times["FISH", z, n] for z in SKEWS for n in WORKERS)
    page.claim(worst <= 1.32, "FISH takes at most 1.32 times as long as SG.", f"at most {worst:.2f} times.")
    versus = {
        s: max(times[s, z, n] / times["FISH", z, n] for z in SKEWS for n in WORKERS)
        for s in ("PKG", "D-C", "W-C")
    }
    page.claim(
        versus["W-C"] >= 12.05 and versus["D-C"] >= 13.57,
        "FISH is up to 12.05 times as fast as W-C and 13.57 times as D-C on drifting keys.",
        ", ".join(f"up to {ratio:.2f} times as fast as {s}" for s, ratio in versus.items())
        + ". A count over the whole life finds new hot keys too: a key joins the head once it makes up 1/(5n) of all tuples so far, "
        "at 128 workers one in 640. With few workers that takes longer, but there two choices suffice. The "
        "next section looks for the paper's factors in other set-ups.",
    )
    memory = [got["FISH", z, n].memory_ratio for z in SKEWS for n in WORKERS]
    page.claim(
        max(memory) <= 2.61,
        "FISH needs 1.11 to 2.61 times the memory of FG.",
        f"{min(memory):.2f} to {max(memory):.2f} times.",
    )
    elsewhere(page, stream(2.0), SOURCES)
    d_choices(page)
    long_run(page)


def long_run(page: Page) -> None:
    """Memory against SG at the paper's full length."""
    jobs = {
        (s, z): (drifting_zipf(50_000_000, z=z), spec, Cluster(128, 32, utilisation=1.0))
        for s, spec in {"FISH": "fish", "SG": "shuffle"}.items()
        for z in (1.0, 2.0)
    }
    got = run_all(jobs)
    against = {z: got["FISH", z].memory / got["SG", z].memory for z in (1.0, 2.0)}
    page.text("## Figure 20: memory against SG, 50M tuples, 32 sources, 128 workers")
    page.claim(
        max(against.values()) < 0.16 and against[1.0] <= 0.0334,
        "FISH needs 3.34 % of SG's memory at z = 1.0 and less than 16 % overall.",
        f"{against[1.0]:.1%} at z = 1.0 and {against[2.0]:.1%} at z = 2.0. (The paper has it from its "
        "cluster, on the same synthetic stream.)",
    )


def real_streams(page: Page, data: Path | None) -> None:
    streams = [
        s
        for name in ("congress_tags", "reddit_domains", "stock_cashtags")
        if (s := real(data, name)) is not None
    ]
    if not streams:
        return
    specs = {"FG": "hash", **RIVALS, "SG": "shuffle"}
    got = run_all(
        {
            (s.label, name, n): (s, spec, cluster(n))
            for s in streams
            for name, spec in specs.items()
            for n in WORKERS
        }
    )
    page.text("## Figure 9, on real drifting streams of ours: execution time / SG (memory / FG)")
    rows = []
    for s in streams:
        for n in WORKERS:
            base = got[s.label, "SG", n].execution_seconds
            cells = [
                f"{got[s.label, k, n].execution_seconds / base:.2f} ({got[s.label, k, n].memory_ratio:.2f})"
                for k in specs
            ]
            rows.append([s.label, n, *cells])
    page.table(["stream", "workers", *specs], rows)
    ratios = {
        (s.label, n): got[s.label, "FISH", n].execution_seconds / got[s.label, "SG", n].execution_seconds
        for s in streams
        for n in WORKERS
    }
    page.claim(
        max(ratios.values()) <= 1.07,
        "FISH takes at most 1.07 times as long as SG on real streams.",
        f"at most {max(ratios.values()):.2f} times.",
        same=False,
    )


def alpha(page: Page) -> None:
    specs = {f"alpha={a}": f"fish:alpha={a}" for a in (0, 0.2, 0.5, 0.8, 1)}
    got = sweep(specs)
    times = time_of(got)
    page.text("## Figure 12: the decay alpha (1: never forget)")
    curves = {f"{n} workers": {s: [(z, times[s, z, n]) for z in SKEWS] for s in specs} for n in WORKERS}
    page.plot("alpha-time", curves, "z", "execution time / SG")
    draw(page, "alpha-memory", got, specs, "memory / FG", lambda result: result.memory_ratio)
    slower = max(times["alpha=1", z, n] / times["alpha=0.2", z, n] for z in SKEWS for n in WORKERS)
    page.claim(
        slower >= 11.91,
        "without decay execution takes up to 12.14 times as long (11.91 in its Figure 14).",
        f"up to {slower:.2f} times as long. It cannot be far more: see what W-C loses if it learns nothing "
        "after the flip.",
        partly=slower > 1.2,
    )
    fat = max(got["alpha=0", z, n].memory / got["alpha=0.2", z, n].memory for z in SKEWS for n in WORKERS)
    page.claim(
        fat >= 2.65,
        "alpha = 0 costs up to 2.65 times the memory of 0.2.",
        f"up to {fat:.2f} times.",
        partly=fat > 1.2,
    )


def theta(page: Page) -> None:
    factors = {"2/n": 2, "1/n": 1, "1/2n": 1 / 2, "1/4n": 1 / 4, "1/8n": 1 / 8}
    done = {n: {name: f"fish:theta={factor / n}" for name, factor in factors.items()} for n in WORKERS}
    got = run_all(
        {
            (name, z, n): (stream(z), done[n][name], cluster(n))
            for name in factors
            for z in SKEWS[::2]
            for n in WORKERS
        }
    )
    got |= {key: result for key, result in sweep({}, SKEWS[::2]).items() if key[0] == "SG"}
    times = time_of(got)
    page.text(
        "## Figure 13: the threshold theta; worst execution time / SG, and largest memory / FG, over z = "
        "1.0, 1.4, 1.8"
    )
    rows = [
        [
            name,
            *(
                f"{max(times[name, z, n] for z in SKEWS[::2]):.2f} "
                f"({max(got[name, z, n].memory_ratio for z in SKEWS[::2]):.2f})"
                for n in WORKERS
            ),
        ]
        for name in factors
    ]
    page.table(["theta", *(f"{n} workers" for n in WORKERS)], rows)
    worst = {name: max(times[name, z, n] for z in SKEWS[::2] for n in WORKERS) for name in factors}
    page.claim(
        worst["2/n"] > 1.2 * worst["1/4n"],
        "only theta = 2/n unbalances (we ask for a fifth more time than at 1/4n; the paper gives no number); "
        "smaller ones hardly differ.",
        "worst time "
        + ", ".join(f"{t:.2f} at {name}" for name, t in worst.items())
        + ". None of them unbalances, as even a cold key may take the less loaded of two workers; what a small theta does cost is memory, "
        "at 128 workers.",
    )


def classes(page: Page) -> None:
    specs = {"CHK": "fish", "w/ W-C": "fish:classes=all", "w/ D-C": "fish:classes=d-choices"}
    got = sweep(specs)
    times = time_of(got)
    page.text(
        "## Figure 15: hot-key classes (CHK) against giving every hot key all workers (W-C) or the same d "
        "(D-C)"
    )
    draw(page, "classes", got, specs, "memory / FG", lambda result: result.memory_ratio)
    saved = {n: max(1 - got["CHK", z, n].memory / got["w/ W-C", z, n].memory for z in SKEWS) for n in WORKERS}
    page.claim(
        saved[64] >= 0.2523 and saved[128] >= 0.4534,
        "CHK saves up to 25.23 % (64 workers) and 45.34 % (128) of the memory of W-C's rule.",
        ", ".join(f"up to {share:.0%} at {n}" for n, share in saved.items()) + " workers; "
        f"worst time {max(times['CHK', z, n] for z in SKEWS for n in WORKERS):.2f} with CHK, "
        f"{max(times['w/ D-C', z, n] for z in SKEWS for n in WORKERS):.2f} with D-C's rule.",
    )


def inference(page: Page) -> None:
    specs = {"with": "fish", "without": "fish:inference=off", "PKG": "pkg", "SG": "shuffle"}
    rows, ratios = [], []
    for n in WORKERS:
        half = cluster(n, speeds=[1 + w % 2 for w in range(n)])
        got = run_all({(s, z): (stream(z), spec, half) for s, spec in specs.items() for z in (1.0, 2.0)})
        best = TUPLES / float(np.sum(1 / half.service_seconds))
        ratios += [got["without", z].execution_seconds / got["with", z].execution_seconds for z in (1.0, 2.0)]
        rows += [[n, z, *(f"{got[s, z].execution_seconds / best:.2f}" for s in specs)] for z in (1.0, 2.0)]
    page.text(
        "## Figure 16: inferring the backlog, half of the workers twice as fast; execution time / perfect "
        "use of all workers"
    )
    page.table(["workers", "z", *specs], rows)
    page.claim(
        max(ratios) >= 2.61,
        "inference speeds execution up to 2.61 times.",
        f"{min(ratios):.2f} to {max(ratios):.2f} times. It does help, but 1.5 is all there is to gain over "
        "equal loads when half of the workers are twice as fast: equal loads take 1/n of the tuples at the "
        "slow ones' pace, perfect use 2/(3n).",
        partly=max(ratios) > 1.2,
    )


def ring(page: Page) -> None:
    rows, doubled = [], []
    for label, n, options in (
        (
            "a worker joins",
            33,
            {"absent": frozenset({32}), "changes": [WorkerChange(TUPLES // 2, 32, 0.001)]},
        ),
        ("a worker leaves", 32, {"changes": [WorkerChange(TUPLES // 2, 31, None)]}),
    ):
        changing, still = cluster(n, **options), cluster(32)
        jobs = {
            (s, z, c is still): (stream(z), f"fish:ring={s}", c)
            for s in ("on", "off")
            for z in SKEWS[::2]
            for c in (changing, still)
        }
        got = run_all(jobs)
        for z in SKEWS[::2]:
            growth = {s: got[s, z, False].memory / got[s, z, True].memory for s in ("on", "off")}
            doubled.append(growth)
            rows.append([label, z, f"{growth['on']:.2f}", f"{growth['off']:.2f}"])
    page.text(
        "## Figure 17: a worker joins or leaves half-way (32 workers): memory / memory without the change"
    )
    page.table(["change", "z", "with the ring", "without (hash mod n)"], rows)
    page.claim(
        max(g["off"] for g in doubled) > 1.3 > max(g["on"] for g in doubled),
        "without the ring memory nearly doubles at low skew; with it it hardly grows (we ask for more than "
        "1.3 without, less with).",
        f"at most {max(g['on'] for g in doubled):.2f} times with, {max(g['off'] for g in doubled):.2f} "
        "times without. Keys that come only before or only after the change cannot double, so the factor "
        "depends on how often keys return.",
    )


def latency(page: Page) -> None:
    specs = {"FG": "hash", **RIVALS, "SG": "shuffle"}
    got = run_all({s: (stream(1.2), spec, Cluster(128, 32, utilisation=0.9)) for s, spec in specs.items()})
    page.text(
        "## Figures 18 and 19: latency and throughput, 32 sources, 128 workers, z=1.2, 90 % load (simulated, "
        "1 ms a tuple)"
    )
    rows = [
        [
            s,
            f"{1e3 * r.latency_p50:.1f}",
            f"{1e3 * r.latency_p95:.1f}",
            f"{1e3 * r.latency_p99:.1f}",
            f"{r.throughput:,.0f}",
        ]
        for s, r in got.items()
    ]
    page.table(["scheme", "p50 ms", "p95 ms", "p99 ms", "tuples/s"], rows)
    cut = 1 - got["FISH"].latency_p99 / got["W-C"].latency_p99
    page.claim(
        cut >= 0.7634,
        "FISH cuts the 99th percentile of W-C's latency by 76.34 % (Storm, MemeTracker and Amazon reviews).",
        f"by {cut:.0%} on a simulated cluster and a synthetic stream.",
        same=False,
    )


def hot_share(page: Page) -> None:
    """How many tuples, and how many different keys, are called hot at the end of an epoch."""
    rows = []
    for z in (1.0, 1.4):
        keys = stream(z).numbers[:200_000]
        for epoch in (1000, 10_000, 50_000):
            rows.append([z, f"{epoch:,}", *(_called_hot(keys, epoch, n) for n in WORKERS)])
    page.text(
        "## Not in the paper: what 1,000-tuple epochs and 1/4n call hot",
        "Over 200,000 tuples of one source: the share of tuples whose key is above theta = 1/4n at the end "
        "of an epoch, and how many different keys ever were. With 128 workers and 1,000 tuples the "
        "threshold is 2.4 of about 1,250 decayed tuples, so a key seen three times in an epoch is hot, and "
        "over time many keys are, each of which leaves state on more workers. Longer epochs call about the "
        "same share of tuples hot, with far fewer keys.",
    )
    page.table(["z", "epoch", *(f"{n} workers" for n in WORKERS)], rows)


def _called_hot(keys: np.ndarray, epoch: int, n: int) -> str:
    summary, shares, ever = SpaceSaving(1000), [], set()
    for first in range(0, len(keys), epoch):
        summary.offer(keys[first : first + epoch])
        counts = summary.counts()
        total = sum(counts.values())
        hot = {key: count for key, count in counts.items() if count > total / (4 * n)}
        shares.append(sum(hot.values()) / total)
        ever |= hot.keys()
        summary.decay(0.2)
    return f"{np.mean(shares):.0%}, {len(ever)} keys"
