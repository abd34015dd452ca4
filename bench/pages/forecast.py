"""The page of forecasts: every forecaster on every stream, what tables made of them come to, and what it
costs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean

import numpy as np

from pages.page import Page
from skewless import policies
from skewless.forecast import Best, Ewma, Forecaster, Gru, History, Holt, Last, Memory, Seasonal, make
from skewless.forecast.online import ASIDE
from skewless.forecast.review import Outcome, Step, Window, outcomes, steps_of
from skewless.forecast.score import on
from skewless.forecast.training import LEAST_WINDOWS
from skewless.forecast.weights import Arrays
from skewless.forecast.worker import FIRST_SECONDS, Here, Worker
from skewless.model.snapshot import Floats, Snapshot, imbalance_of
from skewless.model.table import Int32s, Table
from skewless.policies import Limits
from skewless.simulate import ParquetStream, in_memory
from skewless.simulate.outlook import windows_of
from skewless.simulate.streams import keyhash
from skewless.simulate.streams.generators import zipf_shares
from skewless.simulate.streams.stream import first_tuples

WINDOWS, KEYS, WORKERS, ROWS = 120, 200, 8, 600_000
HORIZONS, SEEDS, LOOP, FELT = (1, 2, 5, 10), (0, 1, 2), 3, 0.01
FIRST = LEAST_WINDOWS + 2
CHEAP = ("halved", "last", "ewma", "holt", "seasonal")
Streams = dict[str, list[Window]]


def build(page: Page, data: Path | None) -> None:
    streams = dict(_streams(data))
    page.text(
        "# Forecasts: how far ahead hot keys can be foreseen, and what it gains",
        f"Each stream is cut into {WINDOWS} windows of equal rows. The {KEYS} hottest keys are foreseen, all "
        f"others count as one. Forecasts are judged from window {FIRST} on: the network (Aj-Stream, section "
        f"3.2) is trained when {LEAST_WINDOWS} windows are there, and anew every 40, always on what lies "
        f"before. "
        "*halved* is how the loop plans without a forecast: each window counts half the one after it. "
        "*network* is "
        "the network alone, with three seeds; *gru* is what a user gets: the network, and the EWMA while "
        "the network "
        "errs more; *best* chooses among all. Figures: the share of the rows foreseen at the wrong key.",
    )
    steps = {name: _steps(windows) for name, windows in streams.items()}
    found = {name: outcomes(list(one), HORIZONS, WORKERS, FIRST) for name, one in steps.items()}
    _errors(page, found)
    _fit(page, steps, found)
    _balance(page, streams, steps)
    _on_spark(page)
    _cost(page)


class Shared(Here):
    """Trains once where several forecasters ask for the same."""

    found: Mapping[tuple[bytes, int], Arrays] = {}

    def ask(self, history: History, seed: int) -> bool:
        task = history.whole.tobytes(), seed
        if task not in Shared.found:
            super().ask(history, seed)
            Shared.found = {**Shared.found, task: self._found or {}}
        self._found = Shared.found[task]
        return True


class Halved(Forecaster):
    """What the loop plans by without a forecast: the last 8 windows, each counting half the next."""

    name = "halved"

    def shares(self, history: History, horizon: int) -> Floats:
        windows = history.shares[-8:]
        weights = 0.5 ** np.arange(len(windows) - 1, -1, -1.0)
        return np.repeat((weights[:, None] * windows).sum(axis=0)[None, :] / weights.sum(), horizon, axis=0)


def _gru(seed: int = 0, aside: float = math.inf) -> Gru:
    return Gru(Shared(), seed=seed, aside=aside)


def _steps(windows: list[Window]) -> list[Step]:
    cheap: dict[str, Forecaster] = {
        "halved": Halved(), "last": Last(), "ewma": Ewma(), "holt": Holt(), "seasonal": Seasonal()
    }  # fmt: skip
    every = {
        **cheap,
        **{f"network {seed}": _gru(seed) for seed in SEEDS},
        "gru": _gru(aside=ASIDE),
        "best": Best([Ewma(), Last(), Holt(), Seasonal(), _gru(aside=ASIDE)], WORKERS),
    }
    return list(steps_of(windows, every, max(HORIZONS), KEYS))


# -- streams -------------------------------------------------------------------------------------------------


def _streams(data: Path | None) -> Iterator[tuple[str, list[Window]]]:
    for path in sorted(data.glob("*.parquet")) if data else ():
        stream = in_memory(first_tuples(ParquetStream(path, "key"), ROWS))
        yield path.stem.replace("_", " "), windows_of(stream, WINDOWS)[0]
    for name, weights in generated():
        yield name, drawn(weights)


def generated(windows: int = WINDOWS, keys: int = 400) -> Iterator[tuple[str, Floats]]:
    """Weights of each key in each window, with the law in the name."""
    generator, time_ = np.random.default_rng(7), np.arange(windows)[:, None]
    base = generator.permutation(zipf_shares(keys, 1.0))
    phase, swing = generator.uniform(0, 2 * np.pi, keys), generator.uniform(0.3, 0.95, keys)
    day = base * (1 + swing * np.sin(2 * np.pi * time_ / 24 + phase))
    burst = _bursts(windows, keys)
    yield "steady", np.repeat(base[None, :], windows, axis=0)
    yield "day of 24 windows", day
    yield "day and bursts", day + burst
    yield "bursts that fade", base + burst
    walk = np.cumsum(generator.normal(0, 0.15, (windows, keys)), axis=0)
    yield "slow drift", base * np.exp(walk)
    turns = np.where((time_ // 8) % 2 == 0, base, base[::-1])
    yield "two laws by turns, 8 windows each", turns
    late = np.where(time_ < 70, day, generator.permutation(base) * (1 + swing * np.sin(time_ / 3 + phase)))
    yield "day, another law from window 70", late


def _bursts(windows: int, keys: int) -> Floats:
    generator, now, rows = np.random.default_rng(11), np.zeros(keys), []
    for window in range(windows):
        now = 0.7 * now
        if window % 6 == 0:
            now[generator.integers(keys)] += 0.15
        rows.append(now)
    return np.stack(rows)


def drawn(weights: Floats, rows: int = 20_000) -> list[Window]:
    generator = np.random.default_rng(3)
    hashes = keyhash.of_int64s(np.arange(weights.shape[1]))
    return [(hashes, generator.multinomial(rows, window / window.sum()) / rows) for window in weights]


# -- what is told --------------------------------------------------------------------------------------------


def _errors(page: Page, found: Mapping[str, list[Outcome]]) -> None:
    wins = dict.fromkeys(HORIZONS, 0)
    losses: list[str] = []
    for horizon in HORIZONS:
        page.text(f"## {horizon} {'window' if horizon == 1 else 'windows'} ahead")
        rows = []
        for stream, every in found.items():
            off = {one.forecaster: one.wrong for one in every if one.horizon == horizon}
            gru = [off[f"network {seed}"] for seed in SEEDS]
            if mean(gru) < min(off[name] for name in CHEAP):
                wins[horizon] += 1
            if horizon == 1 and mean(gru) > off["ewma"]:
                losses.append(f"{stream} ({mean(gru):.1%} against {off['ewma']:.1%})")
            rows.append(
                [
                    stream,
                    *(f"{off[name]:.1%}" for name in CHEAP),
                    f"{mean(gru):.1%} ({min(gru):.1%} - {max(gru):.1%})",
                    f"{off['gru']:.1%}",
                    f"{off['best']:.1%}",
                ]
            )
        page.table(["stream", *CHEAP, "network (3 seeds)", "gru", "best"], rows)
    page.text(
        "**Where the network wins.** It is ahead of every cheap forecast on "
        + ", ".join(f"{count} of {len(found)} streams {h} ahead" for h, count in wins.items())
        + ".",
        "**Where the network loses to an EWMA**, one window ahead: " + ("; ".join(losses) or "nowhere") + ".",
    )


def _fit(page: Page, steps: Mapping[str, list[Step]], found: Mapping[str, list[Outcome]]) -> None:
    page.text(
        "## Figures 19 and 20: fit and mean absolute error",
        "The paper's data cannot be had. Drawn is the share of the key that was hottest over the whole "
        "stream, and "
        "what was foreseen of it one window before; below, the mean absolute error of the share of each "
        "window's "
        "hottest key.",
    )
    shown = [name for name in ("day of 24 windows", "stock cashtags", "bursts that fade") if name in steps]
    panels = {}
    for name in shown:
        hottest = int(np.argmax(steps[name][-1].history.shares.sum(axis=0)))
        key = steps[name][-1].history.key_hashes[hottest]
        panels[name] = {"real": _course(steps[name], key, None)} | {
            label: _course(steps[name], key, said)
            for label, said in (("network", "network 0"), ("ewma", "ewma"))
        }
    page.plot("fit", panels, "window", "% of the rows")
    rows = []
    for stream, every in found.items():
        off = {(one.forecaster, one.horizon): one.hottest for one in every}
        names = ("last", "ewma", "network 0", "gru")
        rows.append([stream, *(f"{off[name, h]:.4f}" for h in (1, 10) for name in names)])
    columns = [f"{name}, {h} ahead" for h in (1, 10) for name in ("last", "ewma", "network", "gru")]
    page.table(["stream", *columns], rows)
    gains = [
        next(one.hottest for one in every if (one.forecaster, one.horizon) == ("network 0", 1))
        / max(1e-12, next(one.hottest for one in every if (one.forecaster, one.horizon) == ("ewma", 1)))
        for every in found.values()
    ]
    page.claim(
        all(gain < 1 for gain in gains),
        "the model predicts key frequencies with good accuracy, at most times (Fig. 19, 20; no rival is "
        "measured).",
        f"one window ahead its error of the hottest key is {min(gains):.2f} to {max(gains):.2f} times that "
        f"of an "
        f"EWMA, below 1 on {sum(gain < 1 for gain in gains)} of {len(gains)} streams.",
        partly=any(gain < 1 for gain in gains),
        same=False,
    )


def _course(steps: list[Step], key: int, said: str | None) -> list[tuple[float, float]]:
    one = np.array([key], dtype=np.int32)
    course = []
    for at in range(FIRST, len(steps) - 1):
        real = steps[at + 1].history
        shares = real.shares[-1] if said is None else steps[at].forecasts[said].shares[0]
        hashes = real.key_hashes if said is None else steps[at].forecasts[said].key_hashes
        course.append((float(at + 1), 100 * float(on(one, hashes, shares)[0])))
    return course


def _balance(page: Page, streams: Streams, steps: Mapping[str, list[Step]]) -> None:
    page.text(
        "## What it gains: balance realised",
        f"Mixed, {WORKERS} workers, defaults (max_imbalance 0.08, 3,000 entries), a plan after each window "
        f"whose "
        f"expected imbalance is above it, in force in the next window. A forecast gives the costs as the "
        f"loop uses "
        f"it: the mean of the next {LOOP} windows for the keys it knows, halved counts for the others. *one "
        f"key* is "
        "what the hottest key alone imposes, *known* a plan from the next window itself. Figures: max / "
        "mean of the "
        "next window, in the mean. (*moved*: share of the rows' state moved per window.)",
    )
    ways = ("halved", "ewma", "network 0", "gru", "best")
    rows: list[list[str]] = []
    gaps: dict[str, list[float]] = {way: [] for way in ways}
    for stream, windows in streams.items():
        counted = _Counted(windows)
        come = {way: counted.realised(steps[stream], way) for way in (*ways, "known")}
        for way in ways:
            gaps[way].append(come[way][0] - come["known"][0])
        figures = [f"{come[way][0]:.3f} ({come[way][1]:.1%})" for way in (*ways, "known")]
        rows.append([stream, f"{counted.hashed():.3f}", f"{counted.one_key():.3f}", *figures])
    page.table(
        ["stream", "hashing", "one key", "none (halved)", "ewma", "network", "gru", "best", "known"], rows
    )
    page.text(
        "Above what knowing the next window gives, in the median of the streams: "
        + ", ".join(f"{way} {np.median(gap):+.3f}" for way, gap in gaps.items())
        + "; at worst "
        + ", ".join(f"{way} {max(gap):+.3f}" for way, gap in gaps.items())
        + ".",
        f"Against planning without a forecast, more level by over {FELT} / less level by over {FELT}, of "
        f"{len(streams)} streams: " + "; ".join(_against(gaps, way) for way in ways[1:]) + ".",
        "The network is judged one window ahead, since a table must serve at once. So where it is only "
        "better "
        "far ahead (`day and bursts`, 5 and 10 windows), it stays set aside, and that is left unused.",
    )


def _against(gaps: Mapping[str, list[float]], way: str) -> str:
    differences = [one - none for one, none in zip(gaps[way], gaps["halved"], strict=True)]
    better, worse = sum(d < -FELT for d in differences), sum(d > FELT for d in differences)
    return f"{way} {better} / {worse}"


class _Counted:
    """The windows of a stream with all keys aligned."""

    def __init__(self, windows: list[Window]) -> None:
        self.hashes: Int32s = np.unique(np.concatenate([hashes for hashes, _ in windows]))
        self.shares = [on(self.hashes, hashes, shares) for hashes, shares in windows]
        self.judged = range(FIRST, len(windows) - 1)

    def hashed(self) -> float:
        return 1 + mean(self._imbalance(Table(WORKERS), at + 1) for at in self.judged)

    def one_key(self) -> float:
        return mean(max(1.0, WORKERS * float(self.shares[at + 1].max())) for at in self.judged)

    def realised(self, steps: list[Step], way: str) -> tuple[float, float]:
        """Max / mean of the windows after each plan, and the share of the state that a plan moves."""
        table, limits = Table(WORKERS), Limits()
        come, moved = [], []
        for at in self.judged:
            expected = self.shares[at + 1] if way == "known" else self._expected(steps[at], way, at)
            state = np.sum(self.shares[max(0, at - 4) : at + 1], axis=0)
            snapshot = Snapshot.of(table, self.hashes, expected, state)
            if snapshot.imbalance > limits.max_imbalance:
                plan = policies.get("mixed")(snapshot, table, Limits(max_imbalance=limits.max_imbalance / 2))
                table = plan.table
                moved.append(plan.bytes_moved / float(state.sum()))
            else:
                moved.append(0.0)
            come.append(1 + self._imbalance(table, at + 1))
        return mean(come), mean(moved)

    def _expected(self, step: Step, way: str, at: int) -> Floats:
        recent = self.shares[max(0, at - 7) : at + 1]
        weights = 0.5 ** np.arange(len(recent) - 1, -1, -1.0)
        expected = np.average(recent, axis=0, weights=weights)
        if way != "halved":
            said = step.forecasts[way]
            _, here, there = np.intersect1d(self.hashes, said.key_hashes, return_indices=True)
            expected[here] = said.mean(LOOP)[there]
        return np.asarray(expected)

    def _imbalance(self, table: Table, at: int) -> float:
        return imbalance_of(np.bincount(table.route(self.hashes), weights=self.shares[at], minlength=WORKERS))


def _on_spark(page: Page) -> None:
    """What `bench/forecast_join.py` has found, in the words of its own page: it needs Spark, this one does
    not."""
    beside = page.folder / "forecast-join.md"
    if beside.exists():
        outcome = beside.read_text().split("## Outcome", 1)[1].split("##")[0].strip()
        page.text(
            "## What it gains on Spark, in a join", outcome, "All of it: [forecast-join](forecast-join.md)."
        )


# -- cost ----------------------------------------------------------------------------------------------------


def _cost(page: Page) -> None:
    """1,000 keys: CPU per window on the loop's thread, and of a training in its own process."""
    keys, windows = 1000, 110
    weights = dict(generated(keys=keys + 200))["day and bursts"][:windows]
    page.text(
        "## What it costs", f"{keys:,} keys, `day and bursts`; processor time, of one core at 10 s windows."
    )
    rows = []
    for name in ("last", "ewma", "holt", "seasonal"):
        ms = _thread_ms(make(name), weights, keys)
        rows.append([name, f"{ms:.1f} ms", "-", f"{ms / 1e4:.2%}"])
    clock = [0.0]
    worker = _Waited(clock=lambda: clock[0])
    ms = _thread_ms(make("best", partitions=WORKERS, trainer=worker), weights, keys, clock)
    trained = worker.trained
    share = ms / 1e4 + sum(trained) / (windows * 10)
    rows.append(
        ["best, with gru", f"{ms:.1f} ms", f"{mean(trained):.1f} s, {len(trained)} times", f"{share:.2%}"]
    )
    page.table(
        ["forecast", "per window, on the loop's thread", "per training, in its own process", "of a core"],
        rows,
    )
    history = Memory(keys)
    for window in drawn(weights):
        history.add(*window)
    page.claim(
        share <= 0.02,
        "(our own goal) at most 2 % of one core at 1,000 keys and 10 s windows.",
        f"{share:.2%}; training is paid from a budget of 2 % of the time that has passed, and the first one "
        f"needs "
        f"{FIRST_SECONDS:.0f} s of it. The training process held at most {worker.peak_mb:.0f} MB, nearly "
        f"all of it "
        f"jax and its "
        f"compiler, and is gone between trainings; a history of 288 windows holds "
        f"{288 * keys * 8 / 1e6:.1f} MB.",
    )


class _Waited(Worker):
    """Time stands still until a training has ended; what each took is kept."""

    trained: list[float]
    peak_mb = 0.0

    def ask(self, history: History, seed: int) -> bool:
        begun = super().ask(history, seed)
        while begun and self._child is not None and self._child.poll() is None:
            self.peak_mb = max(self.peak_mb, _peak_mb(self._child.pid))
            time.sleep(0.1)
        return begun

    def _pay(self, cpu_seconds: float) -> None:
        self.trained = [*getattr(self, "trained", []), cpu_seconds]
        super()._pay(cpu_seconds)


def _peak_mb(pid: int) -> float:
    """The most memory that a process has held, as Linux tells it; 0 elsewhere."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _thread_ms(forecaster: Forecaster, weights: Floats, keys: int, clock: list[float] | None = None) -> float:
    memory, spent = Memory(keys), 0.0
    for window in drawn(weights):
        before = time.thread_time()
        memory.add(*window)
        forecaster.learn(memory.history)
        forecaster.shares(memory.history, LOOP)
        spent += time.thread_time() - before
        if clock is not None:
            clock[0] += 10.0
    return 1000 * spent / len(weights)
