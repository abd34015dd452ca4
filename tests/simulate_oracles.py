"""Each scheme once more, in the fewest lines of plain Python: what the compiled loops are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Route = Callable[[int, int, int], int]  # key, hash, source -> worker

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def candidate(key_hash: int, i: int, n: int) -> int:
    if i == 0:
        return key_hash % n
    x = ((key_hash & 0xFFFFFFFF) + i * GOLDEN) & MASK
    x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return ((x ^ (x >> 33)) >> 32) * n >> 32


def least(workers: Sequence[int], load: Sequence[float]) -> int:
    return min(workers, key=lambda w: load[w])  # the first of the smallest


def hashing(n: int, sources: int) -> Route:
    return lambda key, h, s: h % n


def shuffle(n: int, sources: int) -> Route:
    turn = [s * n // sources for s in range(sources)]

    def route(key: int, h: int, s: int) -> int:
        turn[s] += 1
        return (turn[s] - 1) % n

    return route


def sticky(n: int, candidates: Callable[[int], Sequence[int]]) -> Route:
    home: dict[int, int] = {}
    load = [0] * n

    def route(key: int, h: int, s: int) -> int:
        worker = home.setdefault(key, least(candidates(h), load))
        load[worker] += 1
        return worker

    return route


def potc(n: int, sources: int) -> Route:
    return sticky(n, lambda h: [candidate(h, 0, n), candidate(h, 1, n)])


def on_greedy(n: int, sources: int) -> Route:
    return sticky(n, lambda h: range(n))


def off_greedy(n: int, counts: Sequence[int]) -> Route:
    home, load = {}, [0] * n
    for key in sorted(range(len(counts)), key=lambda k: (-counts[k], k)):
        home[key] = least(range(n), load)
        load[home[key]] += counts[key]
    return lambda key, h, s: home[key]


def greedy(n: int, sources: int, d: int = 2, estimate: str = "local", period: int = 0) -> Route:
    truth = [0] * n
    local = [[0] * n for _ in range(sources)]
    seen = 0

    def route(key: int, h: int, s: int) -> int:
        nonlocal seen
        if estimate == "probed" and seen and seen % period == 0:
            local[:] = [list(truth) for _ in range(sources)]
        seen += 1
        load = truth if estimate == "global" else local[s]
        worker = least([candidate(h, i, n) for i in range(d)], load)
        truth[worker] += 1
        if load is not truth:
            load[worker] += 1
        return worker

    return route


class Counter:
    """SpaceSaving: of equal counts the one that grew first is replaced."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.total, self.clock = capacity, 0.0, 0
        self.counts: dict[int, list[float]] = {}  # key -> count, stamp, width

    def touch(self, key: int) -> None:
        if key not in self.counts:
            inherited = 0.0
            if len(self.counts) == self.capacity:
                smallest = min(self.counts, key=lambda k: self.counts[k][:2])
                inherited = self.counts.pop(smallest)[0]
            self.counts[key] = [inherited, 0, 0]
        self.clock += 1
        self.total += 1
        self.counts[key][0] += 1
        self.counts[key][1] = self.clock

    def decay(self, alpha: float) -> None:
        self.total *= alpha
        for entry in self.counts.values():
            entry[0] *= alpha

    def head(self, theta: float) -> list[float]:
        return sorted(
            (c[0] / self.total for c in self.counts.values() if c[0] > theta * self.total), reverse=True
        )


def choices_for(head: Sequence[float], n: int, epsilon: float = 1e-4, published: bool = False) -> int:
    """The smallest d with which no prefix of the head overloads the workers it can reach."""
    least = round(head[0] * n) if published else math.ceil(head[0] * n)
    for d in range(max(2, least), n):
        fits = True
        for h in (1, len(head)) if published else range(1, len(head) + 1):
            b = n - n * (1 - 1 / n) ** (h * d)
            inside = sum(head[:h]) + (b / n) ** d * sum(head[h:]) + (b / n) ** 2 * (1 - sum(head))
            fits = fits and inside <= b / n + (epsilon if published else b * epsilon)
        if fits:
            return d
    return n


def head_choices(
    n: int, sources: int, capacity: int, refresh: int, all_workers: bool, published: bool = False
) -> Route:
    counters = [Counter(capacity) for _ in range(sources)]
    load = [[0] * n for _ in range(sources)]
    width: list[int] = [0] * sources
    due = [0] * sources

    def route(key: int, h: int, s: int) -> int:
        counter, d = counters[s], min(2, n)
        counter.touch(key)
        if counter.counts[key][0] > 1 / (5 * n) * counter.total:
            if not all_workers and (width[s] == 0 or counter.clock >= due[s]):
                width[s] = choices_for(counter.head(1 / (5 * n)), n, published=published)
                due[s] = counter.clock + min(refresh, 1 + counter.clock // 10)
            d = n if all_workers else width[s]
        worker = least(range(n) if d >= n else [candidate(h, i, n) for i in range(d)], load[s])
        load[s][worker] += 1
        return worker

    return route


def fish(
    n: int,
    sources: int,
    orders: Callable[[int], Sequence[int]],
    service: Sequence[float],
    arrival: float,
    capacity: int = 1000,
    alpha: float = 0.2,
    epoch: int = 1000,
    interval: float = 10.0,
    classes: str = "chk",
    ring: bool = True,
) -> Route:
    theta = 1 / (4 * n)
    counters = [Counter(capacity) for _ in range(sources)]
    wait = [[0.0] * n for _ in range(sources)]
    d_min, seen, updates = [2] * sources, 0, 0

    def route(key: int, h: int, s: int) -> int:
        nonlocal seen, updates
        if seen * arrival > (updates + 1) * interval:
            updates += 1
            wait[:] = [[max(0.0, t - interval / sources) for t in row] for row in wait]
        seen += 1
        counter = counters[s]
        if counter.clock and counter.clock % epoch == 0:
            hot = counter.head(theta)
            if classes == "d-choices":
                d_min[s] = choices_for(hot, n) if hot else 2
            elif hot:
                d_min[s] = min(n, max(2, math.ceil(n * sum(hot) / len(hot) - 1e-12)))
            else:
                d_min[s] = 2
            counter.decay(alpha)
        counter.touch(key)
        entry, d = counter.counts[key], min(2, n)
        if entry[0] > theta * counter.total:
            top = max(c[0] for c in counter.counts.values())
            if classes == "chk":
                entry[2] = d = int(
                    min(n, max(n >> math.floor(math.log2(top / entry[0])), d_min[s], entry[2]))
                )
            else:
                d = n if classes == "all" else d_min[s]
        worker = least(orders(h)[:d] if ring or d < n else range(n), wait[s])
        wait[s][worker] += service[worker]
        return worker

    return route
