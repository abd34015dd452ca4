"""What a routing is worth: imbalance, execution time, memory, latency. One compiled pass beside the routing.

Separate from the simulator, which decides what to route, because these are the definitions:
- imbalance I(t) = largest load - mean load after t tuples; its average fraction is the mean of I(t) over all
  t, divided by the number of tuples (PKG paper, sections 2 and 6.2);
- execution time: when the last worker is done, tuples arriving evenly and waiting in line (FISH paper,
  section 6.1);
- batch stretch: how much longer micro-batches take than with perfect balance, a batch ending with its slowest
  worker;
- memory: the number of (key, worker) pairs, against one for each key (both papers).
"""

from __future__ import annotations

import numpy as np

from skewless.simulate.compiled import Floats, Int32s, Int64s, Words, compiled

LATENCY_BINS = 1 << 11
POINTS, STEP = 512, 1 << 13

# Places in the array of running sums.
SEEN, LARGEST, SUM_IMBALANCE, PAIRS, KEYS, BATCH, SUM_SLOWEST, SUM_PERFECT, SUMS = range(9)


class Measures:
    """Running sums over a stream; their size depends on keys and workers only."""

    def __init__(self, workers: int, batch: int) -> None:
        self.workers, self.batch = workers, batch
        self.sums = np.zeros(SUMS)
        self.loads = np.zeros(workers, dtype=np.int64)
        self.batch_loads = np.zeros(workers, dtype=np.int64)
        self.free_at = np.zeros(workers)
        self.bits = np.zeros((1024, -(-workers // 64)), dtype=np.uint64)
        self.latencies = np.zeros(LATENCY_BINS, dtype=np.int64)
        self.points: list[tuple[int, float]] = []  # (t, I(t))
        self.steps, self.stride = 0, 1

    def add(
        self, keys: Int32s, workers: Int32s, alive: Int32s, service_seconds: Floats, arrival_seconds: float
    ) -> None:
        """Takes in a chunk of routed tuples, with a point of I(t) after each `STEP`."""
        for first in range(0, len(keys), STEP):
            part = slice(first, first + STEP)
            self._add(keys[part], workers[part], alive, service_seconds, arrival_seconds)

    def _add(
        self, keys: Int32s, workers: Int32s, alive: Int32s, service_seconds: Floats, arrival_seconds: float
    ) -> None:
        needed = int(keys.max(initial=-1)) + 1
        if needed > len(self.bits):
            bits = np.zeros((max(needed, 2 * len(self.bits)), self.bits.shape[1]), dtype=np.uint64)
            bits[: len(self.bits)] = self.bits
            self.bits = bits
        latency = np.empty(len(keys))
        arrays = (self.sums, self.loads, self.batch_loads, self.free_at, self.bits, latency)
        _measure(keys, workers, alive, service_seconds, arrival_seconds, self.batch, *arrays)
        self.latencies += np.bincount(_bins(latency), minlength=LATENCY_BINS)
        self._point(len(alive))

    def _point(self, alive: int) -> None:
        """Keeps a point of I(t) after each `stride` steps; when there are too many, every second one."""
        self.steps += 1
        if self.steps % self.stride == 0:
            self._keep(alive)
        if len(self.points) > POINTS:
            self.points, self.stride = self.points[1::2], 2 * self.stride

    def _keep(self, alive: int) -> None:
        self.points.append((int(self.sums[SEEN]), float(self.sums[LARGEST] - self.sums[SEEN] / alive)))

    def finish(self, alive: Int32s, service_seconds: Floats) -> None:
        """Closes the last batch, and I(t) with its last point."""
        _close_batch(self.sums, self.batch_loads, alive, service_seconds)
        if self.steps and (not self.points or self.points[-1][0] < self.sums[SEEN]):
            self._keep(len(alive))

    def latency(self, quantile: float) -> float:
        """The latency that this share of the tuples does not exceed, to within 3 %."""
        ranks = np.cumsum(self.latencies)
        if not ranks[-1]:
            return 0.0
        bin_ = int(np.searchsorted(ranks, np.ceil(quantile * ranks[-1])))
        return float(np.array([(bin_ + 1 + _BASE) << 47], dtype=np.int64).view(np.float64)[0])


_BASE = int(np.array([2.0**-32]).view(np.int64)[0] >> 47)


def _bins(latency: Floats) -> Int64s:
    """A bin for each power of two from 2^-32 to 2^32 seconds and each 32nd part of it: the top bits of the
    number itself."""
    return np.asarray(np.clip((latency.view(np.int64) >> 47) - _BASE, 0, LATENCY_BINS - 1))


@compiled
def _close_batch(sums: Floats, batch_loads: Int64s, alive: Int32s, service_seconds: Floats) -> None:
    slowest, tuples, rate = 0.0, 0, 0.0
    for worker in range(len(batch_loads)):
        slowest = max(slowest, batch_loads[worker] * service_seconds[worker])
        tuples += batch_loads[worker]
        batch_loads[worker] = 0
    for worker in alive:
        rate += 1.0 / service_seconds[worker]
    sums[SUM_SLOWEST] += slowest
    sums[SUM_PERFECT] += tuples / rate
    sums[BATCH] = 0.0


@compiled
def _measure(
    keys: Int32s,
    workers: Int32s,
    alive: Int32s,
    service_seconds: Floats,
    arrival_seconds: float,
    batch: int,
    sums: Floats,
    loads: Int64s,
    batch_loads: Int64s,
    free_at: Floats,
    bits: Words,
    latency: Floats,
) -> None:
    seen, largest, imbalance, pairs, in_batch = (
        sums[SEEN],
        sums[LARGEST],
        sums[SUM_IMBALANCE],
        sums[PAIRS],
        sums[BATCH],
    )
    found_keys, share = sums[KEYS], 1.0 / len(alive)
    for i in range(len(keys)):
        key, worker = keys[i], workers[i]
        loads[worker] += 1
        largest = max(largest, loads[worker])
        batch_loads[worker] += 1
        arrival = seen * arrival_seconds
        seen += 1.0
        imbalance += largest - seen * share
        free_at[worker] = max(free_at[worker], arrival) + service_seconds[worker]
        latency[i] = free_at[worker] - arrival
        bit = np.uint64(1) << np.uint64(worker & 63)
        if bits[key, worker >> 6] & bit == 0:
            if not bits[key].any():
                found_keys += 1.0
            bits[key, worker >> 6] |= bit
            pairs += 1.0
        in_batch += 1.0
        if in_batch >= batch:
            _close_batch(sums, batch_loads, alive, service_seconds)
            in_batch = 0.0
    sums[SEEN], sums[LARGEST], sums[SUM_IMBALANCE], sums[PAIRS], sums[BATCH] = (
        seen,
        largest,
        imbalance,
        pairs,
        in_batch,
    )
    sums[KEYS] = found_keys
