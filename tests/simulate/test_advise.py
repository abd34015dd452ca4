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
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless import policies
from skewless.cli.advise import advise_command
from skewless.cli.simulate import simulate_command
from skewless.errors import SettingError
from skewless.simulate import bursts, from_array, zipf
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
    assert mergeable.best == "table with splits"
    assert mergeable.gain > 3
    assert mergeable.table is not None
    assert len(mergeable.table.targets(int(from_array([7]).hashes[0]))) >= 4
    best = next(result for result in mergeable.results if result.scheme == mergeable.best)
    assert mergeable.memory_ratio == best.memory_ratio < 1.1


@pytest.mark.parametrize("operator", ["atomic", "mergeable"])
@pytest.mark.parametrize("height", [0.0, 0.3])
def test_only_what_spark_can_be_told_to_do_is_recommended_and_the_call_is_named(
    operator: str, height: float
) -> None:
    stream = bursts(60_000, keys=2000, z=0.9, every=20_000, height=height)
    advice = advise(stream, workers=8, operator=operator)
    assert advice.worth_it
    assert advice.best in advice.usable
    assert set(advice.usable) <= {result.scheme for result in advice.results}
    moves = f'skewless.balance(spark, policy="{advice.best}")'
    wanted = {
        "atomic": moves,
        "mergeable": 'skewless.repartition(df, 8, "key", table=advice.table)'
        if advice.best == "table with splits"
        else f'skewless.repartition(df, 8, "key") and {moves}',
    }[operator]
    assert advice.call == wanted
    assert any(wanted in words for words in advice.words)
    assert (advice.table is None) == ("advice.table" not in advice.call)
    if advice.best != "table with splits":
        assert policies.get(advice.best)


def test_what_is_moved_counts_against_the_gain() -> None:
    """Another key is hot in each batch: a policy that runs after it moves much and gains little."""
    stream = bursts(200_000, keys=300, z=0.3, every=4000, height=0.3)
    advice = advise(stream, workers=8)
    by_name = {result.scheme: result for result in advice.results}
    eager = by_name["simple"]
    assert eager.batch_stretch < by_name["hash"].batch_stretch
    assert eager.costs.moved_state > eager.tuples
    assert not advice.worth_it
    assert advice.call == ""


@given(seed=st.integers(0, 1000), z=st.floats(0.3, 1.2), operator=st.sampled_from(["atomic", "mergeable"]))
@settings(max_examples=8, deadline=None)
def test_the_gain_is_the_time_saved_less_one_row_per_row_moved(seed: int, z: float, operator: str) -> None:
    advice = advise(zipf(20_000, 300, z, seed=seed), workers=6, operator=operator)
    by_name = {result.scheme: result for result in advice.results}
    gains = {
        name: by_name["hash"].batch_stretch
        / (by_name[name].batch_stretch + by_name[name].costs.moved_state / 20_000)
        for name in advice.usable
    }
    assert advice.gain == pytest.approx(gains[advice.best])
    assert advice.worth_it == (advice.gain >= 1.1)
    assert max(gains.values()) <= 1.2 * max(advice.gain, 1.1)


def test_a_long_key_is_cut_in_the_text_and_whole_in_the_advice() -> None:
    keys = ["x" * 10_000] * 500 + [f"user{i}" for i in range(500)]
    advice = advise(keys, workers=4)
    assert advice.hot[0].name == keys[0]
    assert "(10,000 characters)" in str(advice)
    assert max(map(len, str(advice).splitlines())) < 500


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


def test_a_join_is_told_to_split_what_spark_can_split_and_how() -> None:
    random = np.random.default_rng(3)
    keys = np.where(random.random(100_000) < 0.6, 0, random.integers(1, 5000, 100_000))
    advice = advise(keys, workers=8, operator="join")
    assert advice.best == "mixed:widths=auto"
    assert advice.call == 'skewless.balance(spark, policy="mixed", splits="auto")'
    assert advice.gain > 2
    assert advice.table is None
    assert any("neither of a full outer one" in words for words in advice.words)
    assert not {"pkg", "fish", "d-choices", "w-choices", "shuffle"} & {r.scheme for r in advice.results}
    whole = advise(keys, workers=8, operator="atomic")
    assert whole.best != advice.best
    assert any("--operator join" in words for words in whole.words)


def test_a_join_without_a_hot_key_is_not_told_to_split() -> None:
    advice = advise(zipf(100_000, 50_000, 0.0), workers=4, operator="join")
    assert advice.call == ""
    assert not advice.worth_it


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


def test_the_batch_of_the_command_is_the_interval_of_a_table_policy(file: Path) -> None:
    """A policy plans after each whole batch of the 40,000 rows, unless it has an interval of its own."""
    arguments = ["--data", str(file), "--key", "user", "--workers", "6", "--json"]

    def plans(batch: int, scheme: str) -> int:
        options = ["--batch", str(batch), "--scheme", scheme]
        found: int = json.loads(CliRunner().invoke(simulate_command, [*arguments, *options]).stdout)[0][
            "costs"
        ]["plans"]
        return found

    assert plans(40_001, "mixed") == 0
    assert plans(40_000, "mixed") == 1
    assert 2 <= plans(3000, "mixed") <= 13
    assert plans(3000, "mixed:interval=40000") == 1


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
        (["--key", "user"], "Add --data FILE"),
        (["--seed", "-1"], "seed -1"),
        (["--seed", str(1 << 70)], "from 0 to 2147483647"),
        (["--plot", "absent/p.svg"], "no folder absent"),
        (["--plot", "p.jpeg2000"], "Give .svg"),
        (["--plot", "p"], "Give .svg"),
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
