"""From what the JVM observed of the last batches to a snapshot that policies read.

Separate from the snapshot because a snapshot holds costs by whatever measure, and here the measure is made:
the cost of a key is its rows times the seconds that a row more costs its partition. What the sketch did not
name is the partition's remainder.

Two partitions, one batch. Partition 0 took 2 seconds for 100 rows, partition 1 took 1 second for 50; key hash
4 had 60 rows:

>>> batch = ObservedBatch(7, 0, 2500, rows=[100, 50], bytes=[1000, 500], run_ms=[2000, 1000],
...                       key_hashes=[4], key_rows=[60])
>>> snapshot = snapshot_of([batch], Table(2))
>>> snapshot.costs, snapshot.remainder_costs, snapshot.loads
(array([1.2]), array([0.8, 1. ]), array([2., 1.]))
>>> snapshot.state_bytes                   # 60 rows of 10 bytes each
array([600.])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skewless.control.observed import ObservedBatch
from skewless.errors import SettingError
from skewless.model.snapshot import Floats, Snapshot, sides_of
from skewless.model.spread import Spread
from skewless.model.table import Int32s, Table

_CHEAP, _DEAR = 0.7, 1.4  # run times within this band around the line are noise
_AGREEING = 3  # batches whose times must agree before they count
_LEAST_SLOPE = 0.1  # of the mean: rows never count for nothing
CostFunction = Callable[[Int32s, Floats], ArrayLike]
"""A user's own measure: (key hashes, their rows in the window) -> the cost of each."""


def snapshot_of(
    batches: Sequence[ObservedBatch],
    table: Table,
    cost: CostFunction | None = None,
    *,
    decay: float = 1.0,
    earlier: Mapping[int, Table] | None = None,
    foreseen: tuple[Int32s, Floats] | None = None,
) -> Snapshot:
    """The batches, oldest first, as one snapshot of work under `table`. Those of another number of partitions
    are left out, and those of an epoch that is neither the table's own nor in `earlier`, the tables before it
    by epoch.

    - A key's cost is its rows times the seconds per row of its partition in that batch (`rates_of`). With a
      `cost` of the user's own, the remainders cost as much per row as the tracked keys do on average.
    - A batch counts `decay` times as much as the one after it; weights are 1 on average.
    - Under an earlier table a key was elsewhere, but its rows were the same: it weighs where `table` puts it
      now.
    - Every entry of the table is tracked, with cost 0 if the sketch does not name it, so that it can be taken
      back.
    - Where shares are `foreseen`, of (key hashes, share of the rows), these keys count by them instead of by
      what they had.
    - If the sketch gives the keys of a partition more rows than the partition had, they are scaled down to
      what it had.
    - A key's state bytes are those last measured; where nobody measured them an estimate, its rows in the
      window times the mean bytes of a row that its partition was sent. What is left of a partition's measured
      state is its remainder's.
    - Of a join, a key has rows on either side, each counted once. Where a table split the key, its partitions
      had its replicas, too (`Spread`); its seconds per row are the mean of theirs.

    Hash 4 had 60 rows in partition 0; then a table moved it to partition 1, and it had 15. Weights 2/3 and
    4/3:

    >>> before, after = Table(2), Table(2, {4: 1}, epoch=1)
    >>> one = ObservedBatch(7, 0, 90, [60, 30], [0, 0], [-1, -1], [4], [60])
    >>> two = ObservedBatch(8, 1, 90, [0, 50], [0, 0], [-1, -1], [4], [15])
    >>> snapshot = snapshot_of([one, two], after, decay=0.5, earlier={0: before})
    >>> snapshot.costs.round(), snapshot.sources
    (array([60.]), array([1], dtype=int32))
    """
    routed = {**(earlier or {}), table.epoch: table}
    used = [batch for batch in batches if batch.epoch in routed and batch.partitions == table.partitions]
    expected, expected_shares = foreseen or (np.zeros(0, dtype=np.int32), np.zeros(0))
    known = (table.move_hashes, table.split_hashes, *(batch.key_hashes for batch in used))
    hashes = np.unique(np.concatenate([*known, expected[expected_shares > 0]]))
    n = table.partitions
    row_bytes = _bytes_per_row(used, n)
    key_rows, right_rows, key_costs, key_bytes = np.zeros((4, len(hashes)))
    rest_rows, rest_costs, rest_bytes = np.zeros((3, n))
    for batch, weight, rates in zip(used, _weights(len(used), decay), rates_of(used), strict=True):
        spread, ours = Spread.under(routed[batch.epoch], hashes), batch.epoch == table.epoch
        left, right = _tracked_rows(batch, hashes, spread)
        seconds, size = spread.means(rates, len(hashes)), spread.means(row_bytes, len(hashes))
        key_rows += weight * (left + right)
        right_rows += weight * right
        key_costs += weight * (left + right) * seconds
        key_bytes += (left + right) * size
        rest_rows += weight * _rest(batch.rows.astype(np.float64), spread.loads(left, right), ours)
        rest_costs += weight * _rest(batch.rows * rates, spread.loads(left * seconds, right * seconds), ours)
        rest_bytes += _rest(batch.rows * row_bytes, spread.loads(left * size, right * size), ours)
    shares = np.divide(right_rows, key_rows, out=np.zeros(len(hashes)), where=key_rows > 0)
    if len(expected) and used:
        seconds = Spread.under(table, hashes).means(rates, len(hashes))
        expected_rows = expected_shares * float(key_rows.sum() + rest_rows.sum())
        key_rows, key_costs = _as_foreseen(hashes, key_rows, key_costs, seconds, expected, expected_rows)
    if cost is not None:
        key_costs, rest_costs = _user_costs(cost, hashes, key_rows, rest_rows)
    if used:
        key_bytes, rest_bytes = _measured_bytes(used[-1], table, hashes, key_bytes, rest_bytes, shares)
    split = np.isin(hashes, table.split_hashes)
    cells = Spread.under(table, hashes[split])
    return Snapshot.of(
        table,
        hashes,
        key_costs,
        key_bytes,
        remainder_costs=np.maximum(0, rest_costs + cells.loads(*sides_of(key_costs[split], shares[split]))),
        remainder_bytes=np.maximum(0, rest_bytes + cells.loads(*sides_of(key_bytes[split], shares[split]))),
        holds_splits=True,
        batches=tuple(batch.batch for batch in used),
        sides=used[-1].sides if used else "",
        right_shares=shares,
    )


def _weights(count: int, decay: float) -> Floats:
    """Of batches, oldest first, 1 on average."""
    weights = decay ** np.arange(count - 1, -1, -1.0)
    return weights * count / weights.sum() if count else weights


def seconds_per_row(batch: ObservedBatch, fallback: float = 1.0) -> Floats:
    """Seconds that one row more costs each partition: the slope of run time over rows, the same for all,
    times a factor where a partition's run time is far from the line (its rows are dear, or cheap). `fallback`
    where nothing is known.

    A task's fixed part (opening and committing its state) is no reason to move keys, and noise of a few
    percent even less: neither may look like load. Half a second a task and 2 ms a row:

    >>> from dataclasses import replace
    >>> rows = np.array([100, 200, 300, 250])
    >>> batch = ObservedBatch(0, 0, 9, rows, rows, run_ms=500 + 2 * rows, key_hashes=[], key_rows=[])
    >>> seconds_per_row(batch).round(4)
    array([0.002, 0.002, 0.002, 0.002])
    >>> dear = replace(batch, run_ms=[700, 900, 1100, 2500])     # the rows of the last are dear
    >>> seconds_per_row(dear).round(4)
    array([0.0046, 0.0046, 0.003 , 0.0078])
    """
    slope, factors = _line(batch, fallback)
    return slope * _out_of_band(factors)


def rates_of(batches: Sequence[ObservedBatch]) -> Iterator[Floats]:
    """`seconds_per_row` of each batch of a window; a partition counts as dear or cheap only if the median of
    at least three batches under one table says so. One batch's times prove nothing: a busy host, a collection
    of garbage, a cold start."""
    mean = _mean_seconds_per_row(batches)
    slopes = [_line(batch, mean)[0] for batch in batches if _timed(batch)]
    lines = [_line(batch, float(np.median(slopes)) if slopes else mean) for batch in batches]
    for batch, (slope, _) in zip(batches, lines, strict=True):
        factors = [
            f
            for other, (_, f) in zip(batches, lines, strict=True)
            if other.epoch == batch.epoch and not np.isnan(f).all()
        ]
        typical = np.full(batch.partitions, np.nan)
        if len(factors) >= _AGREEING:
            known = ~np.isnan(factors).all(axis=0)  # not a partition that no batch knows the time of
            typical[known] = np.nanmedian(np.array(factors)[:, known], axis=0)
        yield slope * _out_of_band(typical)


def _line(batch: ObservedBatch, fallback: float) -> tuple[float, Floats]:
    """Seconds that a row more costs, and how far each partition's time is off that line, as a factor; NaN
    where nobody knows."""
    factors = np.full(batch.partitions, np.nan)
    known = (batch.rows > 0) & (batch.run_ms > 0)
    if not _timed(batch):
        return fallback, factors
    seconds, rows = batch.run_ms[known] / 1000, batch.rows[known].astype(np.float64)
    mean = float(seconds.sum() / rows.sum())
    spread = rows - rows.mean()
    if len(rows) < 3 or not spread.any():  # no line
        return mean, factors
    slope = float(np.clip((spread @ seconds) / (spread @ spread), _LEAST_SLOPE * mean, mean))
    factors[known] = seconds / (seconds.mean() + slope * spread)
    return slope, factors


def _timed(batch: ObservedBatch) -> bool:
    return bool(((batch.rows > 0) & (batch.run_ms > 0)).any())


def _out_of_band(factors: Floats) -> Floats:
    """1 where a factor is noise, or not known."""
    with np.errstate(invalid="ignore"):
        return np.where((factors <= _CHEAP) | (factors >= _DEAR), factors, 1.0)


def _mean_seconds_per_row(batches: Sequence[ObservedBatch]) -> float:
    """Over all that is known; 1 if nothing is, so that at least the rows count."""
    seconds = rows = 0.0
    for batch in batches:
        known = (batch.rows > 0) & (batch.run_ms > 0)
        seconds += float(batch.run_ms[known].sum()) / 1000
        rows += float(batch.rows[known].sum())
    return seconds / rows if rows else 1.0


def _tracked_rows(batch: ObservedBatch, hashes: Int32s, spread: Spread) -> tuple[Floats, Floats]:
    """The left and right rows of each tracked key in the batch, each row counted once. Those of whole keys
    are no more than their partition had."""
    left, right = np.zeros((2, len(hashes)))
    if len(hashes):
        at = np.minimum(np.searchsorted(hashes, batch.key_hashes), len(hashes) - 1)
        tracked = hashes[at] == batch.key_hashes
        left_rows, right_rows = batch.rows_by_side
        np.add.at(left, at[tracked], left_rows[tracked])
        np.add.at(right, at[tracked], right_rows[tracked])
    whole = spread.widths(len(hashes)) == 1
    sums = spread.loads(left * whole, right * whole)
    shrink = np.ones(batch.partitions)
    np.divide(batch.rows, sums, out=shrink, where=sums > batch.rows)
    by_key = np.where(whole, spread.means(shrink, len(hashes)), 1.0)
    return left * by_key, right * by_key


def _rest(measured: Floats, tracked: Floats, ours: bool) -> Floats:
    """What is left of each partition. The rows of a split key are never dealt out quite evenly, so that less
    than nothing may be left: under the table in force that makes good what its cells have too much."""
    return measured - tracked if ours else np.maximum(0.0, measured - tracked)


def _as_foreseen(
    hashes: Int32s, rows: Floats, costs: Floats, rates: Floats, expected: Int32s, expected_rows: Floats
) -> tuple[Floats, Floats]:
    """Rows and costs with the foreseen rows of these keys; a key costs what it cost per row, and a key that
    had no rows the rate of its partition.

    >>> _as_foreseen(np.array([4, 7]), np.array([10.0, 0.0]), np.array([5.0, 0.0]), np.array([0.4, 0.4]),
    ...              np.array([4, 7]), np.array([20.0, 5.0]))
    (array([20.,  5.]), array([10.,  2.]))
    """
    _, at, where = np.intersect1d(hashes, expected, assume_unique=True, return_indices=True)
    per_row = rates.copy()
    np.divide(costs, rows, out=per_row, where=rows > 0)
    rows, costs = rows.copy(), costs.copy()
    rows[at] = expected_rows[where]
    costs[at] = rows[at] * per_row[at]
    return rows, costs


def _bytes_per_row(batches: Sequence[ObservedBatch], partitions: int) -> Floats:
    rows, size = np.zeros(partitions), np.zeros(partitions)
    for batch in batches:
        if batch.bytes.any():  # not known of one that is still to come
            rows += batch.rows
            size += batch.bytes
    per_row = np.full(partitions, size.sum() / rows.sum() if rows.any() else 0.0)
    np.divide(size, rows, out=per_row, where=rows > 0)
    return per_row


def _measured_bytes(
    newest: ObservedBatch,
    table: Table,
    hashes: Int32s,
    key_bytes: Floats,
    rest_bytes: Floats,
    right_shares: Floats,
) -> tuple[Floats, Floats]:
    """The state bytes of keys and remainders: as measured where they were, else as estimated. Of a split key
    the replicas were measured, too."""
    _, at, measured_at = np.intersect1d(hashes, newest.state_hashes, assume_unique=True, return_indices=True)
    spread, key_bytes = Spread.under(table, hashes), key_bytes.copy()
    copies = spread.copies(1 - right_shares, right_shares)
    key_bytes[at] = np.maximum(newest.state_bytes[measured_at], 0) / copies[at]
    if len(newest.partition_state_bytes) != table.partitions:
        return key_bytes, rest_bytes
    rest = newest.partition_state_bytes - spread.loads(*sides_of(key_bytes, right_shares))
    return key_bytes, np.where(newest.partition_state_bytes >= 0, rest, rest_bytes)


def _user_costs(cost: CostFunction, hashes: Int32s, rows: Floats, rest_rows: Floats) -> tuple[Floats, Floats]:
    """The costs that the user's function gives, and the remainders at the same mean cost a row."""
    advice = (
        "Give a function of (key_hashes, rows) that returns one finite number of zero or more for each key."
    )
    try:
        costs = np.array(cost(hashes.copy(), rows.copy()), dtype=np.float64)
    except Exception as error:
        raise SettingError(f"the cost function failed: {type(error).__name__}: {error}. {advice}") from error
    if costs.shape != hashes.shape:
        raise SettingError(f"the cost function returned shape {costs.shape} for {len(hashes)} keys. {advice}")
    bad = np.flatnonzero(~(np.isfinite(costs) & (costs >= 0)))
    if len(bad):
        raise SettingError(
            f"the cost function returned {costs[bad[0]]} for key hash {hashes[bad[0]]}. {advice}"
        )
    mean = costs.sum() / rows.sum() if rows.any() else 1.0
    return costs, rest_rows * mean
