"""Advice: what it recommends and when it says that nothing is worth doing; the two commands, with good and
bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from skewless.cli.advise import advise_command
from skewless.cli.simulate import simulate_command
from skewless.errors import SettingError
from skewless.simulate import zipf
from skewless.simulate.advise import REFERENCES, advise, runs_of
from skewless.simulate.catalogue import kind


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = np.concatenate([np.zeros(12_000, dtype=np.int64), np.arange(28_000) % 2000])
    path = tmp_path_factory.mktemp("keys") / "clicks.parquet"
    pq.write_table(pa.table({"user": np.random.default_rng(0).permutation(keys), "other": keys}), path)
    return path


def test_uniform_keys_are_best_left_alone() -> None:
    advice = advise(zipf(100_000, 50_000, 0.0), workers=4, operator="mergeable")
    assert not advice.worth_it
    assert advice.best == "hash"
    assert (advice.gain, advice.memory_ratio) == (1.0, 1.0)
    assert "Leave it as it is" in " ".join(advice.words)
    assert not advice.hot


def test_an_atomic_operator_is_never_told_to_split_a_key() -> None:
    advice = advise(zipf(100_000, 2000, 0.9), workers=8)
    assert not any(kind(result.scheme).splits for result in advice.results)
    assert advice.worth_it
    assert kind(advice.best).splits is False
    assert advice.best not in REFERENCES


def test_a_giant_key_is_named_and_only_a_split_is_said_to_help() -> None:
    keys = np.where(np.random.default_rng(1).random(60_000) < 0.5, 7, np.arange(60_000) % 500)
    atomic = advise(keys, workers=8)
    assert atomic.hot[0].name == "7"
    assert atomic.hot[0].fair_shares == pytest.approx(4, rel=0.05)
    assert atomic.floor == pytest.approx(4, rel=0.05)
    assert min(result.batch_stretch for result in atomic.results) >= 0.999 * atomic.floor
    assert "mergeable" in atomic.words[-1]
    mergeable = advise(keys, workers=8, operator="mergeable")
    assert kind(mergeable.best).splits
    assert mergeable.gain > 3
    best = next(result for result in mergeable.results if result.scheme == mergeable.best)
    assert mergeable.memory_ratio == best.memory_ratio < 8


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("keys", [[], ["only"], ["only"] * 50])
def test_trivial_streams_get_the_trivial_answer(keys: list[str], workers: int) -> None:
    advice = advise(np.array(keys, dtype=str), workers=workers)
    assert advice.best == "hash"
    assert not advice.worth_it


def test_progress_adds_up_to_all_replays() -> None:
    seen: list[int] = []
    advise(zipf(30_000, 100, 1.0), workers=4, progress=seen.append)
    assert sum(seen) == 30_000 * runs_of("atomic")


def test_an_unknown_operator_or_no_worker_is_a_setting_error() -> None:
    with pytest.raises(SettingError, match="atomic or mergeable"):
        advise([1, 2], workers=2, operator="magic")
    with pytest.raises(SettingError, match="workers"):
        advise([1, 2], workers=0)


def test_the_advise_command_speaks_to_people_and_to_machines(file: Path) -> None:
    arguments = [str(file), "--key", "user", "--workers", "8", "--operator", "mergeable"]
    text = CliRunner().invoke(advise_command, arguments)
    assert text.exit_code == 0, text.output
    assert "hot keys" in text.output
    assert "times as fast" in text.output
    machine = json.loads(CliRunner().invoke(advise_command, [*arguments, "--json"]).output)
    assert machine["hot"][0]["name"] == "0"
    assert machine["worth_it"] is True
    assert machine["best"] in [result["scheme"] for result in machine["results"]]


def test_the_simulate_command_compares_schemes_and_draws(file: Path, tmp_path: Path) -> None:
    arguments = [
        "--data",
        str(file),
        "--key",
        "user",
        "--scheme",
        "hash",
        "--scheme",
        "greedy:d=3",
        "--workers",
        "6",
    ]
    text = CliRunner().invoke(simulate_command, [*arguments, "--plot", str(tmp_path / "p.svg")])
    assert text.exit_code == 0, text.output
    assert "greedy:d=3" in text.output
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    rows = json.loads(CliRunner().invoke(simulate_command, [*arguments, "--json", "--tuples", "5000"]).stdout)
    assert [row["scheme"] for row in rows] == ["hash", "greedy:d=3"]
    assert rows[0]["tuples"] == 5000


@pytest.mark.parametrize("generator", ["zipf", "drifting", "fluctuating", "bursts", "ln1", "ln2"])
def test_the_simulate_command_knows_every_generator(generator: str) -> None:
    arguments = [
        "--generator",
        generator,
        "--tuples",
        "20000",
        "--keys",
        "500",
        "--scheme",
        "pkg",
        "--speeds",
        "1,2",
        "--json",
    ]
    done = CliRunner().invoke(simulate_command, arguments)
    assert json.loads(done.stdout)[0]["tuples"] == 20_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scheme", "magic"], "scheme 'magic' is unknown"),
        (["--workers", "0"], "0 workers"),
        (["--z", "-1"], "z=-1"),
        (["--z", "nan"], "z=nan"),
        (["--tuples", "-5"], "-5 tuples"),
        (["--speeds", "1,x"], "not numbers"),
        (["--speeds", "nan"], "speed nan"),
        (["--batch", "0"], "batch 0"),
        (["--data", "absent.parquet", "--key", "k"], "no file"),
        (["--data", "absent.parquet"], "--key COLUMN"),
    ],
)
def test_a_wrong_argument_of_simulate_is_a_line_and_not_a_traceback(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(simulate_command, ["--tuples", "1000", *arguments])
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert words in done.output


def test_a_wrong_argument_of_advise_is_a_line_and_not_a_traceback(file: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("user\n1\n")
    for arguments, words in (
        ([str(file), "--key", "absent", "--workers", "2"], "has no column 'absent'"),
        ([str(tmp_path / "x.csv"), "--key", "user", "--workers", "2"], "cannot be read as parquet"),
        ([str(file), "--key", "user", "--workers", "-3"], "-3 workers"),
    ):
        done = CliRunner().invoke(advise_command, arguments)
        assert done.exit_code == 1
        assert words in done.output
