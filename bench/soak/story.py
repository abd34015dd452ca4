"""What happens in one round: the queries, their input, and what will go wrong, all drawn from one seed.

Separate from what runs it because several processes, one after the other, play the same story.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from integration.state_run import Timers, Variables, processed, time_outs, totals
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

N = 4
BATCHES = (8, 16)  # from, to
QUERIES = 3
CLUSTER_SHARE = 0.15
SCHEMA = "side string, k string, d long, v long, t long"
FIRST_FILE_SECONDS = 1_700_000_000  # files are read in the order of their times
ODD_KEYS = [
    None,
    "",
    " ",
    "\u00e4\u00f6\u00fc",
    "a'b",
    'a"b',
    "\U0001f600",
    "x" * 300,
    "\t",
    "0",
    "-0",
    "NULL",
]


@dataclass(frozen=True)
class Operator:
    """A step with state; `keys` are the columns of its exchange."""

    name: str
    build: Callable[[DataFrame], DataFrame]
    mode: str = "update"
    keys: tuple[str, ...] = ("k",)
    split_sides: tuple[str, ...] = ()


def _timed(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "20 seconds")


def _joined(how: str) -> Callable[[DataFrame], DataFrame]:
    def build(df: DataFrame) -> DataFrame:
        left = _timed(df).where("side = 'l'").selectExpr("k", "v AS lv", "t AS lt")
        right = _timed(df).where("side = 'r'").selectExpr("k AS rk", "v AS rv", "t AS rt")
        near = "k = rk AND rt BETWEEN lt - INTERVAL 10 seconds AND lt + INTERVAL 15 seconds"
        return left.join(right, F.expr(near), how)

    return build


def _sessions(df: DataFrame) -> DataFrame:
    found = _timed(df).groupBy(F.session_window("t", "4 seconds"), "k").agg(F.count("*"), F.sum("v"))
    return found.withColumn("session_window", F.col("session_window").cast("string"))


OPERATORS = (
    Operator("count", lambda df: df.groupBy("k").count()),
    Operator(
        "sums by two keys", lambda df: df.groupBy("k", "d").agg(F.sum("v"), F.max("t")), keys=("k", "d")
    ),
    Operator("dropDuplicates", lambda df: df.select("k", "d").dropDuplicates(), "append", ("k", "d")),
    Operator("session window", _sessions, "append"),
    Operator("inner join", _joined("inner"), "append", split_sides=("left", "right", "grid")),
    Operator("left outer join", _joined("left_outer"), "append", split_sides=("left",)),
    Operator("right outer join", _joined("right_outer"), "append", split_sides=("right",)),
    Operator("full outer join", _joined("full_outer"), "append"),
    Operator("applyInPandasWithState", totals),
    Operator("applyInPandasWithState, time-out", time_outs, "append"),
    Operator("transformWithStateInPandas", lambda df: processed(df, Variables(), "None")),
    Operator("transformWithStateInPandas, timers", lambda df: processed(_timed(df), Timers(), "EventTime")),
)


@dataclass(frozen=True)
class QueryStory:
    """One query of a round."""

    seed: int
    operator: Operator
    checkpoint_format: int
    changelog: bool
    loop: str  # who publishes: "hand", "loop" or "both"

    @property
    def name(self) -> str:
        return f"{self.operator.name} (format {self.checkpoint_format}, {self.loop})"

    def rows(self) -> list[list[dict[str, Any]]]:
        """The input, batch by batch: few or many keys, one of them hot, some odd ones; times advance."""
        random = Random(self.seed)
        odd = random.sample(ODD_KEYS, random.randrange(len(ODD_KEYS)))
        pool = odd + [f"k{i}" for i in range(random.choice([1, 5, 40, 200]))]
        hot, share = random.choice(pool), random.choice([0.0, 0.3, 0.8])
        step, counter = random.choice([1, 10, 40]), 0
        batches = []
        for batch in range(random.randint(*BATCHES)):
            rows = []
            for _ in range(random.choice([0, 1, 40, 120])):
                key = hot if random.random() < share else random.choice(pool)
                time = batch * step + random.randrange(40)
                counter += 1
                rows.append(
                    {"side": random.choice("lr"), "k": key, "d": counter % 3, "v": counter, "t": time}
                )
            batches.append(rows)
        return batches

    def write_input(self, home: Path) -> None:
        write_batches(home / "in", ["\n".join(map(json.dumps, rows)) for rows in self.rows()])


@dataclass(frozen=True)
class Story:
    """One round."""

    seed: int
    cluster: bool
    queries: tuple[QueryStory, ...]

    @staticmethod
    def of(seed: int) -> Story:
        random = Random(seed)
        cluster = random.random() < CLUSTER_SHARE
        loop = random.choice(["hand", "hand", "loop", "both"])
        queries = [
            QueryStory(
                random.randrange(1 << 30), operator, random.choice([1, 2]), random.random() < 0.7, loop
            )
            for operator in random.sample(OPERATORS, QUERIES)
        ]
        return Story(seed, cluster, tuple(queries))


def write_batches(folder: Path, batches: list[str]) -> None:
    """A file for each batch, in order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(batches):
        path = folder / f"{number:05}.json"
        path.write_text(text)
        os.utime(path, (FIRST_FILE_SECONDS + number, FIRST_FILE_SECONDS + number))
