"""A stateful query over a real Kafka topic with skewed keys, balanced while drivers and executors die: the
sink holds plain Spark's rows, batch by batch.

The rest of the tests reads files; here offsets, mappers and replays are Kafka's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from integration.broker import Broker, connector
from integration.conftest import ROOT
from integration.kafka_run import BATCHES, Job
from integration.state_run import SWAPS

rare = pytest.mark.rare


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Broker(tmp_path_factory.mktemp("kafka"))
    yield started
    started.stop()


@pytest.fixture
def drive(broker: Broker, tmp_path: Path) -> Callable[..., int]:
    """Runs `kafka_run.py` in a process group of its own: how it ended."""

    def run(**how: Any) -> int:
        job = Job(str(tmp_path), broker.address, connector(), topic=tmp_path.name, **how)
        done = subprocess.run(
            [sys.executable, "-m", "integration.kafka_run", json.dumps(asdict(job))],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        wanted = (0, -signal.SIGKILL) if job.die else (0,)
        assert done.returncode in wanted, f"{done.stdout}{done.stderr}\nthe broker says:\n{broker.tail}"
        return done.returncode

    return run


def written(arm: Path) -> dict[int, list[list[Any]]]:
    return {int(path.stem): json.loads(path.read_text()) for path in arm.glob("[0-9]*.json")}


def assert_same(home: Path) -> None:
    """Every batch of the balanced run has the rows of the plain one, and state moved in every swap."""
    plain, swapped = written(home / "plain"), written(home / "swapped")
    assert sorted(plain) == list(range(len(plain)))
    assert len(plain) >= BATCHES
    assert swapped == plain
    for batch in SWAPS:
        record = json.loads(
            (home / "swapped" / "checkpoint" / "_skewless" / "swaps" / str(batch)).read_text()
        )
        assert record["rows"] > 0, f"batch {batch} moved nothing"


def batches_written(home: Path) -> list[int]:
    return [int(line) for line in (home / "swapped" / "written").read_text().split()]


def test_a_topic_with_skewed_keys_gives_plain_rows(drive: Callable[..., int], tmp_path: Path) -> None:
    drive()
    assert_same(tmp_path)
    assert sum(row[2] for each in written(tmp_path / "plain").values() for row in each) == 1_200


@rare
@pytest.mark.parametrize("die", ["sink:3", "task:1", "task:4"])
def test_a_driver_killed_in_a_swap_goes_on_where_it_was(
    drive: Callable[..., int], tmp_path: Path, die: str
) -> None:
    assert drive(die=die) == -signal.SIGKILL
    assert (tmp_path / "fired").exists(), "the fault did not fire"
    batch = int(die[-1])
    assert not (tmp_path / "swapped" / "checkpoint" / "commits" / str(batch)).exists()
    assert drive(die=die) == 0
    assert_same(tmp_path)
    written_to = batches_written(tmp_path)
    replayed = sorted({b for b in written_to if written_to.count(b) > 1})
    assert replayed == ([batch] if die.startswith("sink") else [])


@rare
def test_an_executor_killed_in_a_swap_costs_nothing(drive: Callable[..., int], tmp_path: Path) -> None:
    assert drive(master="local-cluster[2,1,1024]", die="executor:3") == 0
    assert (tmp_path / "fired").exists(), "the fault did not fire"
    assert_same(tmp_path)
    assert batches_written(tmp_path) == sorted(written(tmp_path / "plain")), "no batch ran twice"
