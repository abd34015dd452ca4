"""The page of the PKG paper: Table 2, what sources know (G, L, LP), time, skew z, choices d, skewed sources,
two choices."""

# ruff: noqa: E501 - prose

from __future__ import annotations

from pathlib import Path

import numpy as np

from pages.page import Page, real, run_all, share_of_hottest, short, zipf_with_share
from skewless.simulate import Cluster, bursts, in_memory, lognormal_1, lognormal_2, make, simulate, zipf
from skewless.simulate.streams.stream import CHUNK, Numbered

WORKERS = (5, 10, 50, 100)
SCHEMES = {
    "PKG": "pkg:estimate=global",
    "Off-Greedy": "off-greedy",
    "On-Greedy": "on-greedy",
    "PoTC": "potc",
    "Hashing": "hash",
}
TABLE_2 = {
    "PKG": ("3.7e-8", "1.3e-7", "2.7e-2", "3.7e-2", "3.4e-10", "1.4e-9", "2.3e-9", "3.4e-3"),
    "Off-Greedy": ("3.7e-8", "4.1e-8", "7.4e-2", "8.3e-2", "3.4e-10", "6e-10", "6.7e-3", "1.7e-2"),
    "On-Greedy": ("3.6e-7", "6.4e-3", "7.4e-2", "8.3e-2", "7.2e-9", "7.9e-8", "1.0e-2", "1.7e-2"),
    "PoTC": ("7.3e-7", "7.8e-3", "7.4e-2", "8.3e-2", "1.9e-5", "4.3e-6", "1.2e-2", "1.7e-2"),
    "Hashing": ("6.4e-2", "7.8e-2", "9.2e-2", "9.2e-2", "3.5e-2", "3.2e-2", "2.0e-2", "2.8e-2"),
}


def build(page: Page, data: Path | None) -> None:
    page.text(
        "# Partial Key Grouping (Nasir et al.), run again",
        "Imbalance is the fraction of average imbalance of the paper's section 6.2: the mean of I(t) over "
        "all t, divided by the number of tuples. WP (page visits) and TW (tweets) cannot be had; stand-ins "
        "are Zipf streams with the same share of the hottest key, and real streams that we do have. Their "
        "absolute values for a level stream depend on the length (a rounding of one tuple in 22M or 1.2G), "
        "so only orders of magnitude are compared.",
    )
    wiki = real(data, "wiki_words")
    standins = {
        "WP": zipf_with_share(5_000_000, 2_900_000, 0.0932, "WP stand-in"),
        "TW": zipf_with_share(5_000_000, 3_100_000, 0.0267, "TW stand-in"),
    }
    table_2(page, standins, wiki)
    estimates(
        page, [*standins.values(), in_memory(lognormal_1(5_000_000)), in_memory(lognormal_2(5_000_000))], wiki
    )
    over_time(page, wiki or standins["WP"], real(data, "stock_cashtags"))
    skew(page)
    choices(page)
    skewed_sources(page, data)
    two_choices(page)


def table_2(page: Page, standins: dict[str, Numbered], wiki: Numbered | None) -> None:
    streams = {**standins, **({"wiki words": wiki} if wiki else {})}
    jobs = {
        (name, scheme, n): (stream, spec, Cluster(n))
        for name, stream in streams.items()
        for scheme, spec in SCHEMES.items()
        for n in WORKERS
    }
    final = {key: result.imbalance / result.tuples for key, result in run_all(jobs).items()}
    page.text("## Table 2: schemes that never split a key against PKG")
    page.text(
        "Paper's figure / ours on the stand-in, for each number of workers; real words last. Here the figure "
        "is I(m)/m at the end of the stream, not the average over time: what the paper prints for one hot "
        "key, 7.4e-2 at 50 workers, is p1 - 1/n = 7.3e-2, which is the value at the end; the average of a "
        "steadily growing imbalance would be half of it."
    )
    columns = ["scheme", *(f"{name} {n}" for name in streams for n in WORKERS)]
    rows = []
    for scheme, published in TABLE_2.items():
        pairs = [(name, n) for name in standins for n in WORKERS]
        cells = [
            f"{p} / {short(final[name, scheme, n])}" for p, (name, n) in zip(published, pairs, strict=True)
        ]
        cells += [short(final["wiki words", scheme, n]) for n in WORKERS] if wiki else []
        rows.append([scheme, *cells])
    page.table(columns, rows)
    beaten = [
        (name, n)
        for name in streams
        for n in WORKERS
        if any(final[name, s, n] < 0.99 * final[name, "PKG", n] - 1e-6 for s in SCHEMES)
    ]
    page.claim(
        not beaten,
        "PKG is better than every scheme that keeps a key at one worker, even Off-Greedy, which knows the "
        "future.",
        "nowhere beaten by more than rounding." if not beaten else f"beaten at {beaten}.",
    )
    limits = {name: 2 / share_of_hottest(stream) for name, stream in streams.items()}
    binary = all(
        (final[name, "PKG", n] < 1e-4) == (n < limit) for name, limit in limits.items() for n in WORKERS
    )
    page.claim(
        binary,
        "balance is lost where the workers exceed O(1/p1), and is near perfect below.",
        "with 2/p1 = "
        + ", ".join(f"{limit:.0f} ({name})" for name, limit in limits.items())
        + (
            " the change lies between the neighbouring columns."
            if binary
            else " the change lies elsewhere in some column."
        ),
    )


def estimates(page: Page, streams: list[Numbered], wiki: Numbered | None) -> None:
    kinds = {"H": ("hash", 1), "G": ("pkg:estimate=global", 1)}
    kinds |= {f"L{s}": ("pkg", s) for s in (5, 10, 20)}
    kinds |= {
        "L5P": ("pkg:estimate=probed,period=100000", 5),
        "L5P (in turn)": ("pkg:estimate=probed,period=100000,staggered=on", 5),
    }
    streams = [*streams, *([wiki] if wiki else [])]
    jobs = {
        (s.label, kind, n): (s, spec, Cluster(n, sources))
        for s in streams
        for kind, (spec, sources) in kinds.items()
        for n in WORKERS
    }
    got = run_all(jobs)
    page.text("## Figure 4: what a source knows of the loads (H hashing, G global, L local, LP probed)")
    curves = {
        stream.label.partition(" (")[0]: {
            kind: [(n, max(1e-8, got[stream.label, kind, n].imbalance_fraction)) for n in WORKERS]
            for kind in kinds
        }
        for stream in streams
    }
    page.plot("estimates", curves, "workers", "average imbalance (fraction)", log_x=True, log_y=True)
    far = [
        (label, n, f"L{s}")
        for label, n, s in (
            (stream.label.partition(" (")[0], n, s)
            for stream in streams
            for n in WORKERS
            for s in (5, 10, 20)
        )
        if dict(curves[label][f"L{s}"])[n] > 10 * max(dict(curves[label]["G"])[n], 2e-6)
    ]
    page.claim(
        not far,
        "local estimates are always less than an order of magnitude worse than global knowledge, whatever "
        "the number of sources.",
        "so it is here (below 2e-6, a few tuples, differences are not counted)."
        if not far
        else f"further away at {far}.",
    )
    worse = [
        dict(lines["L5P"])[n] / dict(lines["L5"])[n]
        for lines in curves.values()
        for n in WORKERS
        if dict(lines["L5"])[n] < 1e-3
    ]
    page.claim(
        float(np.median(worse)) >= 0.9,
        "probing the true loads does not improve on local estimates.",
        "where the stream can be levelled, probing every 100,000 tuples makes the imbalance "
        f"{min(worse):.1f} to {max(worse):.1f} times that of L5 (median {np.median(worse):.1f}): all five "
        "sources see the same gap at once and fill it five times over. In turn (staggered), the median is "
        f"{_median_ratio(curves, 'L5P (in turn)'):.1f}.",
    )


def _median_ratio(curves: dict[str, dict[str, list[tuple[int, float]]]], kind: str) -> float:
    pairs = [(dict(lines[kind])[n], dict(lines["L5"])[n]) for lines in curves.values() for n in WORKERS]
    return float(np.median([a / b for a, b in pairs if b < 1e-3]))


def over_time(page: Page, steady: Numbered, cashtags: Numbered | None) -> None:
    page.text(
        "## Figure 5: imbalance over time",
        "The paper's cashtags (690k, drifting) are not to be had; ours are other tickers where the folder "
        "has them, else generated bursts.",
    )
    drifting = cashtags or in_memory(bursts(700_000, keys=2900, z=0.9))
    kinds = {
        "H": ("hash", 1),
        "G": ("pkg:estimate=global", 1),
        "L5": ("pkg", 5),
        "L5P": ("pkg:estimate=probed,period=100000", 5),
    }
    got = run_all(
        {
            (s.label, k, n): (s, spec, Cluster(n, src))
            for s in (steady, drifting)
            for k, (spec, src) in kinds.items()
            for n in (10, 50)
        }
    )
    curves = {
        f"{s.label.partition(' (')[0]}, {n} workers": {
            kind: [(t / 1e6, max(i / t, 1e-7)) for t, i in got[s.label, kind, n].points] for kind in kinds
        }
        for s in (steady, drifting)
        for n in (10, 50)
    }
    page.plot("time", curves, "million tuples", "I(t) / t", log_y=True)
    level = all(got[s.label, "L5", 10].imbalance_fraction < 1e-3 for s in (steady, drifting))
    page.claim(
        level,
        "PKG stays level through time and drift unless the workers are too many.",
        "so at 10 workers; at 50 p1 is too large.",
    )


def skew(page: Page) -> None:
    zs, sizes = np.round(np.arange(0.2, 2.01, 0.2), 1), (1000, 1_000_000)
    got = run_all(
        {
            (keys, z, n): (zipf(1_000_000, keys, float(z)), "pkg", Cluster(n, 5))
            for keys in sizes
            for z in zs
            for n in WORKERS
        }
    )
    page.text("## Figure 7: skew z, 1M tuples, 5 sources")
    curves = {
        f"K={keys:,}": {
            f"{n} workers": [(float(z), max(1e-7, got[keys, z, n].imbalance_fraction)) for z in zs]
            for n in WORKERS
        }
        for keys in sizes
    }
    page.plot("skew", curves, "z", "average imbalance (fraction)", log_y=True)
    last = {n: max(z for z in zs if got[1_000_000, z, n].imbalance_fraction < 1e-3) for n in WORKERS}
    page.claim(
        0.8 <= last[10] <= 1.4,
        "PKG withstands skew up to about z = 1.2.",
        "the largest z with an imbalance below 0.001 (K=1M) is " + ", ".join(f"{z} at {n} workers" for n, z in last.items())
        + ": the threshold moves with the workers, as p1 < 2/n says, and 1.2 is right only for few of them.",
    )  # fmt: skip


def choices(page: Page) -> None:
    stream, ds, workers = (
        in_memory(zipf(2_000_000, 1_000_000, 1.2)),
        (2, 3, 4, 6, 9, 15, 25, 50, 100),
        (5, 10, 20, 40, 50, 100),
    )
    got = run_all({(n, d): (stream, f"greedy:d={d}", Cluster(n, 5)) for n in workers for d in ds})
    page.text(f"## Figure 9: choices d, Zipf z=1.2, K=1M (hottest key {share_of_hottest(stream):.1%})")
    curves = {
        "": {f"{n} workers": [(d, max(1e-7, got[n, d].imbalance_fraction)) for d in ds] for n in workers}
    }
    page.plot("choices", curves, "d", "average imbalance (fraction)", log_x=True, log_y=True)
    needed = {n: next((d for d in ds if got[n, d].imbalance_fraction < 1e-4), None) for n in workers}
    page.claim(
        needed[5] == 4 and needed[40] == 9,
        "four choices restore balance at 5 workers, nine at 40, a few tens at 50 to 100.",
        "the smallest tried d with an imbalance below 0.0001 is "
        + ", ".join(f"{d} at {n} workers" for n, d in needed.items())
        + ". More choices do restore balance, but by other numbers: p1 < d/n asks for 2 at 5 workers and 8 at 40, and hashes that collide ask for some more.",
    )


def skewed_sources(page: Page, data: Path | None) -> None:
    stream = real(data, "slashdot0902_edges")
    senders = real(data, "slashdot0902_edges", "src")
    if stream is None or senders is None:
        return
    rows = []
    for sources in (5, 10, 20):
        for n in (5, 10, 50):
            cluster = Cluster(n, sources)
            home = (senders.hashes[senders.numbers].astype(np.int64) % sources).astype(np.int32)
            parts = [home[first : first + CHUNK] for first in range(0, len(home), CHUNK)]
            even, skewed = simulate(stream, "pkg", cluster), simulate(stream, "pkg", cluster, sources=parts)
            rows.append((sources, n, even.imbalance_fraction, skewed.imbalance_fraction))
    page.text(
        "## Figure 8: skew at the sources (Slashdot links: sources by the sender, workers by the target)"
    )
    page.table(
        ["sources", "workers", "uniform", "skewed"], [(s, n, short(a), short(b)) for s, n, a, b in rows]
    )
    worst = max(b for *_, b in rows)
    page.claim(
        worst < 1e-3,
        "skewed sources do not hurt local estimates.",
        f"the largest imbalance with skewed sources is {short(worst)}.",
    )


def two_choices(page: Page) -> None:
    stream, workers = (
        in_memory(zipf(2_000_000, 100_000, 1.0)),
        (4, 8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128),
    )
    share = share_of_hottest(stream)
    got = run_all({n: (stream, "pkg", Cluster(n, 5)) for n in workers})
    final = {n: got[n].imbalance / got[n].tuples for n in workers}
    bound = [(n, share / 2 - 1 / n) for n in workers if share / 2 > 1 / n]
    page.text(
        f"## Two choices fail beyond 2/p1 workers: Zipf z=1, K=100k, p1={share:.3f}, 2/p1={2 / share:.1f}"
    )
    page.text("I(m)/m at the end of the stream, and the bound p1/2 - 1/n, where it is above nothing.")
    page.plot(
        "two-choices",
        {"": {"PKG": [(n, max(1e-7, i)) for n, i in final.items()], "bound": bound}},
        "workers",
        "imbalance / tuples",
        log_x=True,
        log_y=True,
    )
    page.claim(
        all(final[n] >= share / 2 - 1 / n - 1e-9 for n in workers) and final[16] < 1e-4 < final[48],
        "for n > 2/p1 the imbalance of two choices is at least (p1/2 - 1/n) m, whatever is done; below it is "
        "near nothing.",
        "I(m)/m is " + ", ".join(f"{short(final[n])} at {n}" for n in (8, 16, 24, 32, 64, 128)) + " workers.",
    )
    agreement(page)


def agreement(page: Page) -> None:
    """How often local and global knowledge choose the same worker (section 6.2)."""
    keys = in_memory(zipf(1_000_000, 10_000, 1.0))
    hashes, rows = keys.hashes[keys.numbers], []
    for sources in (5, 10, 50):
        cluster = Cluster(5, sources)
        turns = (np.arange(len(hashes)) % sources).astype(np.int32)
        local, whole = (
            make(spec, cluster).route(keys.numbers, hashes, turns) for spec in ("pkg", "pkg:estimate=global")
        )
        rows.append((sources, f"{np.mean(local != whole):.0%}"))
    page.text("## Figure 6: L and G decide differently and are equally level (Zipf z=1, K=10k, 5 workers)")
    page.table(["sources", "tuples that L sends elsewhere than G"], rows)
