"""What is remembered of a query: its last batches and swaps, as values that nobody changes.

Separate from the loop, which makes them on its own thread, so that status and report can be drawn from them
on any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median

from skewless.model.snapshot import Floats
from skewless.wording import amount, counted

KEPT_BATCHES = 1000
KEPT_SWAPS = 200
KEPT_KEYS = 20  # of a batch's heavy hitters, and of a swap's moved keys
SHOWN_TARGETS = 8  # of a split
KEPT_VALUES = 5000  # of keys' values as text
LEVEL_SHARES = 0.1  # of a fair share of the rows: a hottest key below that is like any other
MEDIAN_BATCHES = 20  # what a batch usually takes is the median of so many


@dataclass(frozen=True)
class HotKey:
    """A heavy hitter of one batch: its share of the batch's rows, by how much that share may be off, and its
    value, if known. `foreseen` is the share that a forecast gave it before the batch came."""

    key_hash: int
    share: float
    error: float
    value: str | None = None
    foreseen: float | None = None

    @property
    def label(self) -> str:
        return key_label(self.key_hash, self.value)


@dataclass(frozen=True)
class SplitRecord:
    """One key of a join that is split, or was.

    side            whose rows are dealt out, "left", "right" or "both"; empty of a key that is whole again
    copied_rows     replicas that the last batch had beyond its rows; None if the key was not counted in it
    copied_bytes    state that replicas take, as the plan foresaw it
    gain            share of the tasks' time that the split saves, as the plan foresaw it
    """

    key_hash: int
    side: str
    targets: tuple[int, ...]
    width_before: int = 1
    value: str | None = None
    copied_rows: int | None = None
    copied_bytes: float | None = None
    gain: float | None = None

    @property
    def width(self) -> int:
        return len(self.targets)

    def __str__(self) -> str:
        """
        >>> split = SplitRecord(7, "left", (3, 0, 5), copied_rows=24, copied_bytes=4800, gain=0.4)
        >>> print(split)  # doctest: +NORMALIZE_WHITESPACE
        hash 7: left side over 3 partitions (3 0 5), 24 rows and 4.8 kB of the other side copied, 40% of the
        time saved
        """
        name = key_label(self.key_hash, self.value)
        if not self.side:
            return f"{name}: whole again, in partition {self.targets[0]}"
        sides = "both sides" if self.side == "both" else f"{self.side} side"
        targets = " ".join(str(target) for target in self.targets[:SHOWN_TARGETS])
        more = " ..." if self.width > SHOWN_TARGETS else ""
        rows = [] if self.copied_rows is None else [f"{self.copied_rows:,} rows"]
        size = [] if self.copied_bytes is None else [amount(self.copied_bytes)]
        other = "" if self.side == "both" else " of the other side"
        copied = f", {' and '.join(rows + size)}{other} copied" if rows or size else ""
        saved = "" if self.gain is None else f", {self.gain:.0%} of the time saved"
        return f"{name}: {sides} over {self.width} partitions ({targets}{more}){copied}{saved}"


@dataclass(frozen=True, eq=False)
class BatchRecord:
    """One batch: what each partition cost in seconds, how long the whole took, and the hottest keys, hottest
    first.

    imbalance     the share of time that its tasks lost against level ones, on the slots there were
    predicted_ms  how long it should have taken, by its rows and by the clock as the batches before it taught
    saved_ms      how much longer it would have taken under the table before the last swap
    slots         of the executors alive; 0 if nobody knows
    at            when it was committed, in seconds of the epoch; 0 if nobody knows
    """

    batch: int
    epoch: int
    batch_ms: int
    rows: int
    loads: Floats
    entries: int
    hot_keys: tuple[HotKey, ...] = ()
    imbalance: float = 0.0
    predicted_ms: float | None = None
    saved_ms: float | None = None
    slots: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class SwapRecord:
    """One swap that came into force with `batch`. What is not known is None: a query without state exports
    nothing.

    key_hashes      of the keys that moved, hottest first; the first 20 of `moved`
    key_values      what these hashes stand for, None where it is not known; empty if none is
    expected_ms     what its batch should have taken, by the clock, or the median of the batches before; what
                    it took more is the swap's pause
    before, predicted       imbalance of the plan's snapshot, and as the plan foresaw it
    splits          the keys whose split began, changed or ended
    """

    batch: int
    epoch: int
    key_hashes: tuple[int, ...]
    moved: int
    why: str
    batch_ms: int
    expected_ms: float | None = None
    before: float | None = None
    predicted: float | None = None
    state_rows: int | None = None
    bytes_moved: int | None = None
    export_ms: int | None = None
    key_values: tuple[str | None, ...] = ()
    splits: tuple[SplitRecord, ...] = ()

    @property
    def pause_ms(self) -> float | None:
        return None if self.expected_ms is None else max(0.0, self.batch_ms - self.expected_ms)

    @property
    def keys(self) -> str:
        """The hottest five of the moved keys, for people."""
        values = self.key_values or (None,) * len(self.key_hashes)
        shown = list(zip(self.key_hashes, values, strict=True))[:5]
        more = " ..." if self.moved > 5 else ""
        if not any(value is not None for _, value in shown):
            return f"hashes {' '.join(str(key_hash) for key_hash, _ in shown)}{more}"
        return ", ".join(key_label(key_hash, value) for key_hash, value in shown) + more

    @property
    def moved_words(self) -> str:
        return f"{counted(self.moved, 'key')} moved ({self.keys})" if self.moved else "no key moved"

    def without_values(self) -> SwapRecord:
        """For what must hold no values of keys."""
        return replace(self, key_values=())

    def __str__(self) -> str:
        """One line, for a log and for a person.

        >>> swap = SwapRecord(12, 3, (-7, 40), 2, "gain", 900, 650.0, 0.61, 0.04, state_rows=30,
        ...                   bytes_moved=5200, export_ms=80)
        >>> print(swap)  # doctest: +NORMALIZE_WHITESPACE
        batch 12 went to epoch 3: 2 keys moved (hashes -7 40), 30 state rows, 5.2 kB, export 80 ms,
        batch 900 ms (250 ms longer)
        """
        parts = [] if self.splits and not self.moved else [self.moved_words]
        parts += [f"split {split}" for split in self.splits[:3]]
        parts += [f"{len(self.splits) - 3} more splits"] if len(self.splits) > 3 else []
        parts += [] if self.state_rows is None else [counted(self.state_rows, "state row")]
        parts += [] if self.bytes_moved is None else [amount(self.bytes_moved)]
        parts += [] if self.export_ms is None else [f"export {self.export_ms} ms"]
        longer = "" if self.pause_ms is None else f" ({self.pause_ms:.0f} ms longer)"
        return (
            f"batch {self.batch} went to epoch {self.epoch}: {', '.join(parts)}, "
            f"batch {self.batch_ms} ms{longer}"
        )


@dataclass(frozen=True)
class QueryRecord:
    """One query, as it stood when this was made. `why` says in words what the loop does with it, or why
    nothing; `forecast` how its forecast does, if it has one; `decided_on` is the imbalance by which it
    decided last, over the last batches."""

    query_id: str
    name: str
    running: bool
    epoch: int
    entries: int
    why: str
    batches: tuple[BatchRecord, ...] = ()
    swaps: tuple[SwapRecord, ...] = ()
    errors: dict[str, int] = field(default_factory=dict)
    forecast: str = ""
    splits: tuple[SplitRecord, ...] = ()
    decided_on: float | None = None

    @property
    def title(self) -> str:
        return f"{self.name} ({self.query_id})" if self.name else self.query_id

    @property
    def imbalance(self) -> float | None:
        """The one to tell: what the loop decided on, or the last batch's where it decides nothing."""
        last = self.last_batch
        return self.decided_on if self.decided_on is not None or last is None else last.imbalance

    @property
    def last_batch(self) -> BatchRecord | None:
        """The last batch that had rows; an idle one says nothing about balance."""
        return next((batch for batch in reversed(self.batches) if batch.rows), None)

    @property
    def level_keys_words(self) -> str:
        """Why no key stands out although rows may be skewed; empty where some key does."""
        last = self.last_batch
        if last is None or not last.hot_keys or last.hot_keys[0].share > LEVEL_SHARES / len(last.loads):
            return ""
        return (
            "No key stands out in what reaches the shuffle. If some are hot in your data: an aggregate such "
            "as count() adds up the rows of each key in its map task first, and a hot key arrives as one row "
            "per task, like any other."
        )

    @property
    def bytes_moved(self) -> int:
        return sum(swap.bytes_moved or 0 for swap in self.swaps)

    def realised(self, swap: SwapRecord) -> float | None:
        """The imbalance of the first batch with rows after the swap's own, whose task times hold the
        migration."""
        return next((batch.imbalance for batch in self._after(swap)), None)

    @property
    def model_error(self) -> float | None:
        """By how much predicted times are off the real ones, as a share of these: the median of the last 20
        batches that were no swap's own."""
        swaps = {swap.batch for swap in self.swaps}
        errors = [
            abs(batch.predicted_ms - batch.batch_ms) / batch.batch_ms
            for batch in self.batches
            if batch.predicted_ms is not None and batch.batch_ms and batch.batch not in swaps
        ]
        return float(median(errors[-MEDIAN_BATCHES:])) if errors else None

    def gain(self, swap: SwapRecord) -> float | None:
        """How many times longer the batches since the swap, up to the next one, would have taken under the
        table before it: the median."""
        gains = [
            1 + batch.saved_ms / batch.batch_ms
            for batch in self._after(swap)
            if batch.saved_ms is not None and batch.batch_ms
        ]
        return float(median(gains[:MEDIAN_BATCHES])) if gains else None

    def sentence(self, swap: SwapRecord) -> str:
        """What a swap moved, cost and gained, in one line."""
        realised = self.realised(swap)
        parts = [str(swap)]
        if swap.before is not None:
            foreseen = "" if swap.predicted is None else f", {swap.predicted:.3f} predicted"
            came = "" if realised is None else f", {realised:.3f} realised"
            parts.append(f"imbalance {swap.before:.3f} before{foreseen}{came}")
        return "; ".join([*parts, self.gain_words(swap)])

    def gain_words(self, swap: SwapRecord) -> str:
        if not self._after(swap):
            return "no batch since"
        gain, error = self.gain(swap), self.model_error
        if gain is None or error is None:
            return "gain not known yet"
        times = f"batches take {1 / max(gain, 1e-9):.2f} of what they would under the table before"
        if abs(gain - 1) <= error:
            return f"gain not measurable: by the clock {times}, and it is {error:.0%} off"
        return f"{times}; the clock is {error:.0%} off"

    def _after(self, swap: SwapRecord) -> list[BatchRecord]:
        return [
            batch
            for batch in self.batches
            if batch.epoch == swap.epoch and batch.batch > swap.batch and batch.rows
        ]


def usual_ms(batches: Iterable[BatchRecord], last: int = MEDIAN_BATCHES) -> float | None:
    """The median time of the last 20 batches, or so many, that had rows."""
    times = [batch.batch_ms for batch in batches if batch.rows][-last:]
    return float(median(times)) if times else None


def key_label(key_hash: int, value: str | None = None) -> str:
    """What to call a key before people.

    >>> key_label(-7), key_label(-7, "alice")
    ('hash -7', '"alice" (hash -7)')
    """
    return f"hash {key_hash}" if value is None else f'"{value}" (hash {key_hash})'
