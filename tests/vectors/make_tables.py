"""Writes tables.json: tables with their bytes, routes and diffs, which `Table` of both languages must
reproduce.

    python tests/vectors/make_tables.py            # after a deliberate change of the format only

Separate from the test because the file is made once and then kept: a table stored by an earlier release
must go on reading.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from skewless.model.split import Split
from skewless.model.table import Change, Table, diff

PATH = Path(__file__).with_name("tables.json")
SEED = 20240607
EDGES = [-(1 << 31), -(1 << 31) + 1, -1, 0, 1, (1 << 31) - 2, (1 << 31) - 1]


def make() -> dict[str, Any]:
    """All vectors as plain JSON values."""
    rng = random.Random(SEED)
    made = [*tables(rng), *tables_of_joins(random.Random(SEED + 1))]
    pairs = [(i, i + 1) for i in range(len(made) - 1) if made[i].partitions == made[i + 1].partitions]
    return {
        "seed": SEED,
        "tables": [describe(table, rng) for table in made],
        "diffs": [
            {
                "older": i,
                "newer": j,
                "changes": [described(change) for change in diff(made[i], made[j])],
            }
            for i, j in pairs
        ],
    }


def tables(rng: random.Random) -> Iterator[Table]:
    """Edge cases first, then random tables in pairs for the same number of partitions."""
    yield Table(1)
    yield Table(1, dict.fromkeys(EDGES, 0))
    yield Table(8)
    yield Table(8, {hash_: i for i, hash_ in enumerate(EDGES)}, epoch=1)
    yield Table(8, {hash_: (i % 8, (i + 3) % 8) for i, hash_ in enumerate(EDGES)}, epoch=2)
    yield Table(8, {0: tuple(range(8)), 1: tuple(reversed(range(8)))}, epoch=3)
    yield Table(8, {0: 0, 1: 1, 9: 1}, epoch=(1 << 63) - 1)
    yield Table(1 << 24, {5: (1 << 24) - 1, -5: ((1 << 24) - 1, 0)}, epoch=1 << 40)
    for n in (2, 3, 7, 16, 200, 300, 4096, 10_000):
        for share in (0.0, 0.3, 0.3, 1.0):
            entries = random_entries(rng, rng.choice([3, 12, 40]), n, share)
            yield Table(n, entries, epoch=rng.randrange(1 << 20))


def tables_of_joins(rng: random.Random) -> Iterator[Table]:
    """Tables whose splits have columns too."""
    yield Table(8, {5: Split.right(7, 0), -5: (0, 7), 9: 1}, epoch=4)
    yield Table(8, {5: Split.left(7, 0), -5: Split.grid([[0, 7, 3], [5, 2, 1]])}, epoch=5)
    for n in (6, 6, 300, 300):
        grids = {h: random_grid(rng, n) for h in rng.sample(range(-30, 30), 12)}
        yield Table(n, {**random_entries(rng, 12, n, 0.3), **grids}, epoch=rng.randrange(1 << 20))


def random_grid(rng: random.Random, n: int) -> Split:
    rows, columns = rng.choice([(1, 2), (1, 5), (2, 2), (2, 3), (3, 2), (3, 1)])
    return Split(tuple(rng.sample(range(n), rows * columns)), rows)


def random_entries(
    rng: random.Random, size: int, n: int, split_share: float
) -> dict[int, int | tuple[int, ...]]:
    entries: dict[int, int | tuple[int, ...]] = {}
    for _ in range(size):
        key_hash = rng.choice([rng.randrange(-30, 30), rng.randrange(-(1 << 31), 1 << 31)])
        width = rng.randint(2, min(n, 9))
        entries[key_hash] = (
            tuple(rng.sample(range(n), width)) if rng.random() < split_share else rng.randrange(n)
        )
    return entries


def describe(table: Table, rng: random.Random) -> dict[str, Any]:
    return {
        "partitions": table.partitions,
        "epoch": table.epoch,
        "entries": [entry(table, key_hash, targets) for key_hash, targets in table],
        "encoded": table.encode().hex(),
        "digest": table.digest,
        "routes": [route(table, key_hash, rng) for key_hash in sample_hashes(table, rng)],
    }


def entry(table: Table, key_hash: int, targets: tuple[int, ...]) -> list[Any]:
    """Hash and targets; also the rows of a split that has more than one column."""
    split = table.split_of(key_hash)
    return [key_hash, list(targets), *([split.rows] if split and split.right_width > 1 else [])]


def described(change: Change) -> list[Any]:
    """Hash, targets before and after; also the rows of both where either is a split with columns."""
    before, after = change.before, change.after
    shapes = [side.rows if isinstance(side, Split) else len(side) for side in (before, after)]
    shaped = isinstance(before, Split) or isinstance(after, Split)
    return [change.key_hash, list(before), list(after), *(shapes if shaped else [])]


def sample_hashes(table: Table, rng: random.Random) -> list[int]:
    known = [h for h, _ in table if (split := table.split_of(h)) is None or split.right_width == 1]
    sampled = rng.sample(known, min(len(known), 8)) + EDGES
    sampled += [rng.randrange(-(1 << 31), 1 << 31) for _ in range(3)]
    return [h for h in sampled if h in known or table.split_of(h) is None]


def route(table: Table, key_hash: int, rng: random.Random) -> dict[str, int | None]:
    """One row's route; a content of None is one that may not decide."""
    mappers = rng.choice([1, 2, 5, 64, 1000])
    map_partition = rng.randrange(mappers)
    content = rng.choice([None, 0, -1, rng.randrange(-(1 << 31), 1 << 31)])
    contents = None if content is None else [content]
    target = int(table.route([key_hash], map_partition, mappers, contents)[0])
    return {
        "hash": key_hash,
        "mapPartition": map_partition,
        "mappers": mappers,
        "content": content,
        "target": target,
    }


def text() -> str:
    """The file's text: one table per line, so that a change shows as such."""
    vectors = make()
    lines = [json.dumps(table, separators=(",", ":")) for table in vectors["tables"]]
    diffs = [json.dumps(change, separators=(",", ":")) for change in vectors["diffs"]]
    return (
        f'{{"seed":{SEED},\n"tables":[\n'
        + ",\n".join(lines)
        + '\n],\n"diffs":[\n'
        + ",\n".join(diffs)
        + "\n]}\n"
    )


if __name__ == "__main__":
    PATH.write_text(text())
