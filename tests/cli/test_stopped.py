"""The commands on a stopped query's checkpoint; the JVM behind them is in `integration/test_handover.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from skewless.cli import cli
from skewless.errors import CheckpointError
from skewless.spark import stopped


class Conversion:
    """Two stores of the JVM, and which of them were copied."""

    def __init__(self) -> None:
        self.copied: list[int] = []

    def batch(self) -> int:
        return 4

    def bytes(self) -> int:
        return 5200

    def stores(self) -> int:
        return 2

    def describe(self, store: int) -> str:
        return f"operator {store}"


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    def copy(conversion: Conversion, store: int) -> int:
        conversion.copied.append(store)
        return 1000

    def refuse(location: str) -> str:
        raise CheckpointError(f"{location}: its keys are not at home.")

    conversion = Conversion()
    fake = SimpleNamespace(
        found=conversion,
        conversion=lambda location, checkpoint_format, file_sink: conversion,
        copy_store=copy,
        commit_conversion=lambda conversion: f"committed {conversion.copied}",
        drop_old=lambda location: f"dropped in {location}",
        release_checkpoint=refuse,
        undo_release=lambda location: f"undone in {location}",
        mend_checkpoint=lambda location: f"mended {location}",
    )

    @contextmanager
    def gateway(app: str) -> Iterator[Any]:
        yield fake

    monkeypatch.setattr(stopped, "gateway", gateway)
    return fake


def printed(*arguments: str, exit_code: int = 0) -> str:
    found = CliRunner().invoke(cli, list(arguments))
    assert found.exit_code == exit_code, found.output
    return found.output


def test_convert_copies_every_store_and_commits(jvm: SimpleNamespace) -> None:
    for sinks in ((), ("--no-file-sink", "--file-sink", "/d")):
        assert "_spark_metadata" in printed("convert", "/c", *sinks, exit_code=2)
    assert not jvm.found.copied
    output = printed("convert", "/c", "--no-file-sink")
    assert output.startswith("5.2 kB of state, to be copied in batch 4\n")
    assert "operator 1: 1,000 rows in" in output
    assert output.endswith("committed [0, 1]\n")


def test_a_dry_run_copies_nothing(jvm: SimpleNamespace) -> None:
    assert "operator 1\ndry run: nothing was written." in printed("convert", "/c", "--dry-run")
    assert not jvm.found.copied


def test_the_old_state_is_dropped_alone(jvm: SimpleNamespace) -> None:
    assert printed("convert", "/c", "--drop-old") == "dropped in /c\n"
    printed("convert", "/c", "--drop-old", "--dry-run", exit_code=2)
    assert not jvm.found.copied


def test_a_refusal_is_one_line_and_exit_code_1(jvm: SimpleNamespace) -> None:
    assert printed("release", "/c", exit_code=1) == "Error: /c: its keys are not at home.\n"
    assert printed("release", "/c", "--undo") == "undone in /c\n"
    assert printed("mend", "/c") == "mended /c\n"


def test_repartition_releases_first_and_stops_at_a_refusal(jvm: SimpleNamespace) -> None:
    done: list[tuple[str, int]] = []
    jvm.repartition_checkpoint = lambda location, partitions: done.append((location, partitions))
    assert "--no-file-sink" in printed("repartition", "/c", "8", exit_code=2)
    assert (
        printed("repartition", "/c", "8", "--no-file-sink", exit_code=1)
        == "Error: /c: its keys are not at home.\n"
    )
    assert done == []
    jvm.release_checkpoint = lambda location: f"released {location}"
    output = printed("repartition", "/c", "8", "--no-file-sink")
    assert output.startswith("released /c\n/c has 8 partitions from its next start on")
    assert "spark.skewless.adopt=true" in output
    assert done == [("/c", 8)]
    printed("repartition", "/c", "0", exit_code=2)
