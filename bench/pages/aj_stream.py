"""The page of Aj-Stream's join: throughput, latency and load imbalance against BiStream and plain hashing, by
data, skew, rate and number of instances (Figures 9 to 18)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from pages.aj_stream_arms import (
    GROUP,
    HALF,
    KEYS,
    LEVEL,
    PANES,
    RATE,
    SWEPT,
    TIMED,
    Case,
    all_arms,
    network_of,
    work_of,
)
from pages.forecast import generated
from pages.page import Page
from skewless.model.snapshot import Floats
from skewless.simulate.joins.course import Course
from skewless.simulate.streams.generators import zipf_shares

PAST, SETTLED, SHOWN, STEP = 120, 10, 10, 4
SEEDS, SKEWS, SIZES = (1, 2), (0.8, 1.1, 1.4), (200, 1000)
DRAWN = ("plain hash", "BiStream", "ContRand", "Aj-Stream", "Skewless auto")
WORKS = {"rows": "storing decides", "pairs": "pairs decide"}


def build(page: Page, data: Path | None) -> None:
    _set_up(page)
    with tempfile.TemporaryDirectory(prefix="skewless-aj-") as folder:
        laws = dict(generated(PAST + SETTLED + SHOWN, KEYS))["day and bursts"]
        networks = {seed: network_of(laws[:PAST], Path(folder), seed) for seed in SEEDS}
        _courses(page, laws[PAST:], networks)
        _skews(page)
        _rates(page, laws[PAST:], networks)
    _imbalance(page)
    _behind(page)


def _set_up(page: Page) -> None:
    page.text(
        "# Aj-Stream's join against BiStream, in a simulator",
        "Figures 9 to 18 of Sun, Zhang, Gao, Buyya: *An adaptive load balancing strategy for stateful join "
        "operator in skewed data stream environments*. Its data (Didi) cannot be had, and its cluster "
        "(Storm, 27 machines) is a simulated clock here, so orders and shapes are compared, not seconds. "
        "Forecasts alone, Figures 19 and 20, are on the page of [forecasts](forecast.md).",
        "**The joiners.** A join-biclique: of 24 instances (48 where it is said) half store stream R, half "
        "store S, and each tuple is of either with the same chance. A tuple is stored at one instance of its "
        "half, and looks for partners at every instance of the other half that may hold its key. Instances "
        "work in the order of arrival; the source waits while one that the next tuple goes to has more than "
        "a second of work before it, as Storm's back pressure does. A tuple can be found for "
        f"{PANES} minutes.",
        f"**The work.** {RATE:,.0f} tuples per second arrive, and costs are chosen such that level work "
        f"without copies keeps 24 instances {LEVEL:.0%} busy, at every skew: what is lost is lost to balance "
        "and to copies, not to a stream that has more pairs. The paper gives no costs, so there are two "
        "kinds. *Storing decides*: 90 % of that work is storing, 10 % looking. *Pairs decide*, which is "
        "the paper's own load, stored tuples x tuples that look (equations 1 and 4): 5 % storing, 5 % "
        "looking, 90 % pairs that match. A row of state that moves costs 0.2 ms.",
        f"**The schemes.** *plain hash*: one instance for each key. *BiStream*: random routing, so that a "
        f"tuple looks at all instances of a half. *ContRand*: a key's hash chooses one of the groups of "
        f"{GROUP} instances, chance one of the group; the paper does not say its size. *Aj-Stream* and "
        "*Skewless auto* are the loop that runs on Spark, watching each half as a query that shows it a "
        "batch per minute, with the policies `aj_stream` and `auto` for splits and Mixed for moves, defaults "
        "but no patience and no rest. Nothing is implemented a second time. Aj-Stream has a forecast (the "
        "network in Figures 9 to 12, 15 and 16, else the EWMA: there a law stands still) and its scaling "
        "(Algorithm 3): speeds change from instance to instance, their sum does not, so that all schemes "
        "have the same machines. On Spark nothing can do this to a running task.",
        f"Figures are means of {len(SEEDS)} seeds, with the least and the most. A throughput above what "
        "arrives catches up with what had to wait. Latency is from the source to the last instance; "
        "what a tuple waited at the source is not in it, as in the paper, and so the latency of a "
        "scheme that falls behind looks better than it is.",
    )


# -- figures -------------------------------------------------------------------------------------------------


def _courses(page: Page, weights: Floats, networks: Mapping[int, Path | None]) -> None:
    page.text(
        "## Figures 9 to 12: over time, 24 and 48 instances",
        f"{KEYS:,} keys with a daily shape and bursts (the law `day and bursts` of the page of forecasts), "
        f"{SHOWN} minutes after {SETTLED} to settle (paper: 60 minutes, its means are of the second half): "
        f"rows that were stored before a split lie where they lay until their {PANES} minutes are over, and "
        "for a stream that has fallen behind these are long ones. The network has learned from the "
        f"{PAST} minutes before. Drawn is the first seed, from the start; tables hold the means after it.",
    )
    rates = [RATE] * len(weights)
    found = {
        (kind, half): all_arms(Case(weights, rates, work_of(kind, weights), half), TIMED, networks)
        for kind in WORKS
        for half in (HALF, 2 * HALF)
    }
    _draw_courses(page, "course", {(k, f"{2 * h} instances"): v for (k, h), v in found.items()})
    for kind, words in WORKS.items():
        _table(page, words, {f"{2 * half}": found[kind, half] for half in (HALF, 2 * HALF)})
    ahead = {key: _ratios(one, "Aj-Stream", ("BiStream", "ContRand")) for key, one in found.items()}
    page.claim(
        all(low > 1 for low, _ in ahead.values()),
        "Aj-Stream's throughput is above BiStream's and ContRand's with 24 and with 48 instances "
        "(Fig. 9, 11).",
        "against the better of the two "
        + "; ".join(f"{low:.2f} times ({WORKS[k]}, {2 * h} instances)" for (k, h), (low, _) in ahead.items())
        + ".",
        partly=any(low > 1 for low, _ in ahead.values()),
        same=False,
    )
    page.claim(
        all(late < 1 for _, late in ahead.values()),
        "its latency is the lowest (Fig. 10, 12).",
        "against the lower of the two "
        + "; ".join(
            f"{late:.2f} times ({WORKS[k]}, {2 * h} instances)" for (k, h), (_, late) in ahead.items()
        )
        + ".",
        partly=any(late < 1 for _, late in ahead.values()),
        same=False,
    )
    ways = ("Aj-Stream's splits, no forecast", "Aj-Stream, no scaling", "Aj-Stream's splits, known ahead")
    worth = {
        key: " / ".join(f"{_mean(one[way], 'throughput'):.0f}" for way in ways) for key, one in found.items()
    }
    page.text(
        "**What the forecast is worth here.** Throughput with Aj-Stream's splits, planned from the past / by "
        "the network / by the shares that really come: "
        + "; ".join(f"{words} ({WORKS[kind]}, {2 * half} instances)" for (kind, half), words in worth.items())
        + ".",
    )
    names = ("BiStream", "ContRand", "Aj-Stream")
    more = {
        (kind, name): (
            _mean(found[kind, 2 * HALF][name], "throughput") / _mean(found[kind, HALF][name], "throughput"),
            _mean(found[kind, 2 * HALF][name], "latency_ms") / _mean(found[kind, HALF][name], "latency_ms"),
        )
        for kind in WORKS
        for name in names
    }
    page.claim(
        all(fast > 1 and late > 1 for fast, late in more.values()),
        "with twice the instances throughput rises for all three, and latency rises, too (Fig. 9 to 12).",
        "; ".join(
            f"{name}, {WORKS[kind]}: {fast:.2f} times the throughput, {late:.2f} times the latency"
            for (kind, name), (fast, late) in more.items()
        )
        + ".",
        partly=all(fast > 0.99 for fast, _ in more.values()),
        same=False,
    )


def _skews(page: Page) -> None:
    page.text(
        "## Figures 13 and 14: skew",
        f"Zipf, {KEYS:,} keys, 24 instances; minutes {SETTLED + 1} to {SETTLED + SHOWN}. (Paper: minutes "
        "31 to 60.)",
    )
    minutes = SETTLED + SHOWN
    found = {}
    for kind in WORKS:
        for z in SKEWS:
            weights = np.repeat(zipf_shares(KEYS, z)[None, :], minutes, axis=0)
            case = Case(weights, [RATE] * minutes, work_of(kind, weights))
            found[kind, z] = all_arms(case, SWEPT, dict.fromkeys(SEEDS))
    for figure, measure, label in (
        ("fig13", "throughput", "tuples per second"),
        ("fig14", "latency_ms", "latency, ms"),
    ):
        page.plot(
            figure,
            {
                words: {name: [(z, _mean(found[kind, z][name], measure)) for z in SKEWS] for name in SWEPT}
                for kind, words in WORKS.items()
            },
            "Zipf exponent",
            label,
            log_y=measure == "latency_ms",
        )
    for kind, words in WORKS.items():
        _table(page, words, {f"z {z}": found[kind, z] for z in SKEWS}, ("throughput",))
    lost = {
        (kind, name): _mean(found[kind, SKEWS[-1]][name], "throughput")
        / _mean(found[kind, SKEWS[0]][name], "throughput")
        for kind in WORKS
        for name in SWEPT
    }
    kept = ", ".join(f"{lost['rows', name]:.2f} / {lost['pairs', name]:.2f} ({name})" for name in SWEPT)
    behind = [
        f"{WORKS[kind]}, z {z}"
        for kind in WORKS
        for z in SKEWS
        if _ratios(found[kind, z], "Aj-Stream", ("BiStream", "ContRand"))[0] < 1
    ]
    page.claim(
        all(lost[kind, "Aj-Stream"] > 0.95 for kind in WORKS) and not behind,
        "Aj-Stream performs well under all skews (Fig. 13, 14).",
        f"of the throughput at z {SKEWS[0]} there remains at z {SKEWS[-1]}, storing / pairs decide: {kept}. "
        f"Behind BiStream or ContRand: {'; '.join(behind) or 'nowhere'}.",
        partly=all(lost[kind, "Aj-Stream"] > lost[kind, "plain hash"] for kind in WORKS),
        same=False,
    )
    page.claim(
        all(lost[kind, "BiStream"] < lost[kind, "ContRand"] < 1 for kind in WORKS),
        "ContRand degrades somewhat with skew, and BiStream without it significantly (Fig. 13, 14).",
        f"ContRand keeps {lost['rows', 'ContRand']:.2f} / {lost['pairs', 'ContRand']:.2f} of its throughput, "
        f"BiStream {lost['rows', 'BiStream']:.2f} / {lost['pairs', 'BiStream']:.2f}. Random routing deals "
        "out every key over all instances, which is level at any skew; it pays for the copies, at any skew "
        "alike.",
        partly=all(lost[kind, "ContRand"] < 0.95 for kind in WORKS),
        same=False,
    )


def _rates(page: Page, weights: Floats, networks: Mapping[int, Path | None]) -> None:
    page.text(
        "## Figures 15 and 16: a rate that changes",
        f"As Figures 9 and 10, 24 instances; every {STEP} minutes (paper: 10) another rate, from 500 to "
        "1,500 tuples per second, at random, other ones with each seed; with the costs of 1,000 tuples per "
        "second.",
    )
    found = {}
    for kind in WORKS:
        merged: dict[str, list[Course]] = {name: [] for name in TIMED}
        for seed, folder in networks.items():
            steps = np.random.default_rng(100 + seed).uniform(0.5, 1.5, 1 + len(weights) // STEP)
            rates = (RATE * np.repeat(steps, STEP)[: len(weights)]).tolist()
            one = all_arms(Case(weights, rates, work_of(kind, weights)), TIMED, {seed: folder})
            for name, courses in one.items():
                merged[name] += courses
        found[kind] = merged
    _draw_courses(page, "rates", {(kind, "24 instances"): one for kind, one in found.items()})
    for kind, words in WORKS.items():
        _table(page, words, {"24": found[kind]})
    ahead = {kind: _ratios(one, "Aj-Stream", ("BiStream", "ContRand")) for kind, one in found.items()}
    page.claim(
        all(fast >= 1.221 and late <= 0.545 for fast, late in ahead.values()),
        "with frequently fluctuating data 22.1 % more throughput and 45.5 % less latency than existing "
        "systems (abstract; Fig. 15, 16).",
        "against the better of BiStream and ContRand in each: "
        + "; ".join(
            f"{fast - 1:+.1%} throughput, {late - 1:+.1%} latency ({WORKS[kind]})"
            for kind, (fast, late) in ahead.items()
        )
        + ".",
        partly=all(fast > 1 for fast, _ in ahead.values()),
        same=False,
    )


def _imbalance(page: Page) -> None:
    page.text(
        "## Figures 17 and 18: load imbalance",
        "The measure of the paper: an instance's stored tuples x the tuples that look at it, max / mean - 1 "
        "(equations 1 and 2), here the mean of both halves and of minutes "
        f"{SETTLED + 1} to {SETTLED + SHOWN}, where pairs decide. What a smaller data set changes "
        "is the number of keys, says the paper, so that is swept; Zipf, z = 1. Beside it the "
        "imbalance of the time that instances really "
        "work, which Equation 1 is not: a tuple is not compared with tuples of other keys.",
    )
    minutes, arms = (
        SETTLED + SHOWN,
        {name: SWEPT[name] for name in ("plain hash", "ContRand", "Aj-Stream", "Skewless auto")},
    )
    found = {}
    for keys in SIZES:
        weights = np.repeat(zipf_shares(keys, 1.0)[None, :], minutes, axis=0)
        for half in (HALF, 2 * HALF) if keys == 1000 else (HALF,):
            case = Case(weights, [RATE] * minutes, work_of("pairs", weights), half)
            found[keys, half] = all_arms(case, arms, dict.fromkeys(SEEDS))
    page.plot(
        "fig17",
        {
            title: {
                name: [(keys, _mean(found[keys, HALF][name], measure)) for keys in SIZES] for name in arms
            }
            for title, measure in (("stored x looking", "loads"), ("seconds of work", "work"))
        },
        "keys",
        "max / mean - 1",
        log_x=True,
    )
    columns = {f"{keys:,} keys, {2 * half}": found[keys, half] for keys, half in found}
    _table(page, "stored x looking / seconds of work", columns, ("loads", "work"), 2)
    by_size = [_mean(found[keys, HALF]["ContRand"], "loads") for keys in SIZES]
    page.claim(
        all(a > b for a, b in pairwise(by_size)),
        "ContRand is the less level the smaller the data set is (Fig. 17).",
        "by the paper's measure " + ", ".join(f"{one:.2f}" for one in by_size) + f" with {SIZES} keys.",
        partly=by_size[0] > by_size[-1],
        same=False,
    )
    both = {half: found[1000, half] for half in (HALF, 2 * HALF)}
    grows = [_mean(both[half]["ContRand"], "loads") for half in both]
    page.claim(
        grows[1] > grows[0],
        "with more instances ContRand is clearly less level (Fig. 18).",
        f"{grows[0]:.2f} with 24 and {grows[1]:.2f} with 48 instances, 1,000 keys.",
        same=False,
    )
    gaps = {
        measure: [
            (_mean(one["Aj-Stream"], measure), _mean(one["ContRand"], measure)) for one in found.values()
        ]
        for measure in ("loads", "work")
    }
    page.claim(
        all(ours < theirs for ours, theirs in gaps["loads"]),
        "Aj-Stream is more level than ContRand at every data size and number of instances (Fig. 17, 18).",
        f"by stored x looking on {sum(a < b for a, b in gaps['loads'])} of {len(found)} cases, by seconds of "
        f"work on {sum(a < b for a, b in gaps['work'])}.",
        partly=any(ours < theirs for ours, theirs in gaps["loads"] + gaps["work"]),
        same=False,
    )


def _behind(page: Page) -> None:
    page.text(
        "## What stands behind it",
        "These are readings of the equations and of our code, not figures of the runs above.",
        "- **N_k is linear, pairs are not.** Equation 13 counts a key's share of the tuples; by Equation 4 "
        "its load grows with the square of it. N_k = floor(n x share) leaves a key of up to two "
        "fair shares whole.",
        "- **The copies count.** An instance that takes part of a key also gets all tuples that look for it. "
        "Where both streams are alike that is half of the key's tuples, at any width. Our first fit gives no "
        "instance more than twice the mean, the paper does not say its bound; so a key whose copies alone "
        "are more stays whole, however hot it is.",
        "- **Our loop counts rows.** A copy is priced as a whole row (`model/spread.py`), though it finds "
        "only its part of the pairs; and where all instances have the same rows and not the same time, the "
        "clock may take the difference for the fixed part of a task. Both make it split less than "
        "pairs would need.",
    )


# -- what is told --------------------------------------------------------------------------------------------


def _draw_courses(page: Page, name: str, found: Mapping[tuple[str, str], Mapping[str, list[Course]]]) -> None:
    for measure, label in (("throughput", "tuples per second"), ("latency_ms", "latency, ms")):
        page.plot(
            f"{name}-{measure.removesuffix('_ms')}",
            {
                f"{WORKS[kind]}, {words}": {
                    arm: [
                        (float(at), float(value)) for at, value in enumerate(getattr(one[arm][0], measure), 1)
                    ]
                    for arm in DRAWN
                }
                for (kind, words), one in found.items()
            },
            "minute",
            label,
            log_y=measure == "latency_ms",
        )


def _table(
    page: Page,
    title: str,
    found: Mapping[str, Mapping[str, list[Course]]],
    measures: Sequence[str] = ("throughput", "latency_ms"),
    digits: int = 0,
) -> None:
    """One row for each scheme, one column for each case: the measures, then copies and state moved."""
    arms = next(iter(found.values()))
    rows = []
    for arm in arms:
        cells = [
            " / ".join(_spread(one[arm], measure, digits) for measure in measures) for one in found.values()
        ]
        widest = [f"{np.mean([course.width for course in one[arm]]):.2f}" for one in found.values()]
        moved = [
            f"{np.mean([course.moved_rows for course in one[arm]]) / 1000:.0f}k" for one in found.values()
        ]
        rows.append([arm, *cells, ", ".join(widest), ", ".join(moved)])
    what = {"throughput": "tuples/s", "latency_ms": "ms", "loads": "", "work": ""}
    units = " / ".join(filter(None, (what[measure] for measure in measures)))
    page.table([f"{title}{', ' + units if units else ''}", *found, "instances looked at", "rows moved"], rows)


def _mean(courses: Sequence[Course], measure: str) -> float:
    return float(np.mean([getattr(course, measure)[SETTLED:].mean() for course in courses]))


def _spread(courses: Sequence[Course], measure: str, digits: int) -> str:
    each = [float(getattr(course, measure)[SETTLED:].mean()) for course in courses]
    return f"{np.mean(each):.{digits}f} ({min(each):.{digits}f} - {max(each):.{digits}f})"


def _ratios(found: Mapping[str, list[Course]], ours: str, others: Sequence[str]) -> tuple[float, float]:
    """Throughput over the best of the others', latency over the lowest of theirs."""
    fast = max(_mean(found[name], "throughput") for name in others)
    late = min(_mean(found[name], "latency_ms") for name in others)
    return _mean(found[ours], "throughput") / fast, _mean(found[ours], "latency_ms") / late
