"""Checkpoints as found: whole ones, every kind of damage, what does no harm, and the command that tells of
them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from click.testing import CliRunner, Result

from skewless import Split, Table
from skewless.checkpoint.folder import ArrowFolder
from skewless.checkpoint.inspect import PROVIDER, StoredSwap, inspect, inspect_folder
from skewless.checkpoint.text import checkpoint_text
from skewless.cli import cli
from skewless.errors import CheckpointError

QUERY = "f4c8a110-b611-4589-aa12-1f359e8dca5d"
RUN = "0b0f1a52-5a0c-4f0e-9f0e-3d0c8f6f7a11"
N = 8


def write(path: Path, data: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    (path.parent / f".{path.name}.crc").write_bytes(b"crc")


def write_batches(
    home: Path, newest: int, committed: int, provider: str = PROVIDER, partitions: int = N
) -> None:
    conf = {
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.shuffle.partitions": str(partitions),
    }
    for batch in range(newest + 1):
        write(
            home / f"offsets/{batch}",
            f'v1\n{json.dumps({"batchWatermarkMs": 0, "conf": conf})}\n{{"0":{batch}}}',
        )
    for batch in range(committed + 1):
        write(home / f"commits/{batch}", "v1\n{}")


def write_table(home: Path, table: Table) -> None:
    write(home / f"_skewless/tables/{table.epoch}", table.encode())


def write_pin(home: Path, batch: int, table: Table, /, **changes: object) -> None:
    """A pin as `PinLog` writes it; a change to None takes the field away."""
    values: dict[str, object] = {"format": 1, "batch": batch, "epoch": table.epoch, "digest": table.digest}
    values |= {"partitions": table.partitions, "queryId": QUERY} | changes
    kept = {field: value for field, value in values.items() if value is not None}
    write(home / f"_skewless/pins/{batch}", json.dumps(kept))


def write_swap(home: Path, batch: int, epoch: int, /, **changes: object) -> None:
    values: dict[str, object] = {
        "batch": batch,
        "epoch": epoch,
        "fromEpoch": epoch - 1,
        "keyHashes": 2,
        "rows": 120_000,
    }
    values |= {
        "bytes": 5 << 20,
        "stateBytes": 5 << 20,
        "sources": [1, 2],
        "targets": [0, 3, 7],
        "exportMs": 84,
        "batchMs": 1310,
        "format": 1,
    }
    write(home / f"_skewless/swaps/{batch}", json.dumps(values | changes))


FIRST = Table(N, {17: 3}, epoch=1)
SECOND = Table(N, {17: 3, 42: 0}, epoch=2)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A stateful query with two epochs, from batch 0 and 4, the second swap recorded; batch 6 is
    committed."""
    (tmp_path / "state").mkdir()
    write(tmp_path / "metadata", json.dumps({"id": QUERY}))
    write_batches(tmp_path, newest=6, committed=6)
    for batch, table in ((0, FIRST), (4, SECOND)):
        write_table(tmp_path, table)
        write_pin(tmp_path, batch, table)
    write_swap(tmp_path, 4, 2)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["inspect", *arguments])


def test_a_whole_chain_is_told_with_its_epochs_and_swaps(home: Path) -> None:
    found = inspect(home)
    assert (found.whole, found.problems, found.notes) == (True, (), ())
    assert (found.query_id, found.provider, found.shuffle_partitions) == (QUERY, PROVIDER, N)
    assert (found.newest_offset, found.newest_commit, found.next_batch) == (6, 6, 7)
    assert [(epoch.pin.batch, epoch.pin.epoch, epoch.moves, epoch.splits) for epoch in found.epochs] == [
        (0, 1, 1, 0),
        (4, 2, 2, 0),
    ]
    assert [epoch.swap for epoch in found.epochs] == [
        None,
        StoredSwap(4, 2, 1, 2, 120_000, 5 << 20, (1, 2), (0, 3, 7), 84, 1310),
    ]
    assert (found.epoch_in_force, found.waiting, found.unnamed, found.scratch) == (2, (), (), ())


def test_the_splits_in_force_are_told_with_side_width_and_targets(home: Path) -> None:
    third = Table(
        N,
        {5: Split.right(7, 1), 6: (2, 3, 4), 9: Split.grid([[0, 1], [4, 5]]), 10: 3},
        epoch=3,
    )
    write_table(home, third)
    write_pin(home, 6, third)
    found = inspect(home)
    assert [(key.key_hash, key.side, key.targets) for key in found.epochs[-1].split_keys] == [
        (5, "right", (7, 1)),
        (6, "left", (2, 3, 4)),
        (9, "both", (0, 1, 4, 5)),
    ]
    text = checkpoint_text(found)
    assert "split: key hash 5, right side, width 2, over partitions 7, 1" in text
    assert "split: key hash 6, left side, width 3, over partitions 2, 3, 4" in text
    assert "split: key hash 9, both sides, width 2 x 2, over partitions 0, 1, 4, 5" in text


def test_a_batch_not_committed_is_the_next_one_and_a_later_pin_waits(home: Path) -> None:
    write_batches(home, newest=7, committed=6)
    third = Table(N, {5: 1}, epoch=3)
    write_table(home, third)
    write_pin(home, 8, third)
    found = inspect(home)
    assert (found.next_batch, found.epoch_in_force) == (7, 2)
    assert [(pin.batch, pin.epoch) for pin in found.waiting] == [(8, 3)]
    text = checkpoint_text(found)
    assert "next batch: 7 (started, not committed), under epoch 2" in text
    assert "waiting: epoch 3, for batch 8" in text


def test_a_pin_of_the_very_next_batch_is_in_force_for_it_and_waits(home: Path) -> None:
    third = Table(N, epoch=3)
    write_table(home, third)
    write_pin(home, 7, third)
    found = inspect(home)
    assert (found.next_batch, found.epoch_in_force, len(found.waiting)) == (7, 3, 1)


def test_before_the_first_pin_batches_are_hashed_plainly(tmp_path: Path) -> None:
    write(tmp_path / "metadata", json.dumps({"id": QUERY}))
    write_table(tmp_path, FIRST)
    write_pin(tmp_path, 2, FIRST)
    found = inspect(tmp_path)
    assert (found.whole, found.next_batch, found.epoch_in_force, found.newest_offset) == (True, 0, 0, None)
    assert "hashed plainly" in checkpoint_text(found)


def test_batches_are_ordered_as_numbers(home: Path) -> None:
    write_batches(home, newest=11, committed=11)
    third = Table(N, epoch=3)
    write_table(home, third)
    write_pin(home, 10, third)
    found = inspect(home)
    assert (found.whole, found.newest_offset) == (True, 11)
    assert [epoch.pin.batch for epoch in found.epochs] == [0, 4, 10]


def pin_text(text: str | bytes) -> Callable[[Path], None]:
    return lambda home: write(home / "_skewless/pins/4", text)


def pin_changed(**changes: object) -> Callable[[Path], None]:
    return lambda home: write_pin(home, 4, SECOND, **changes)


def table_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda home: write(home / "_skewless/tables/2", change(SECOND.encode()))


def table_and_pin(batch: int, table: Table) -> Callable[[Path], None]:
    def damage(home: Path) -> None:
        write_table(home, table)
        write_pin(home, batch, table)

    return damage


DAMAGES: list[tuple[str, Callable[[Path], None], str, str]] = [
    ("empty pin", pin_text(""), "pins/4", "not a JSON object"),
    ("pin cut short", pin_text('{"format":1,"ba'), "pins/4", "not a JSON object"),
    ("pin is a list", pin_text("[1]"), "pins/4", "not a JSON object"),
    ("pin is not UTF-8", pin_text(b"\xff\xfe\x00"), "pins/4", "not a JSON object"),
    ("pin nested too deep", pin_text("[" * 60_000), "pins/4", "not a JSON object"),
    ("pin of a later format", pin_changed(format=2), "pins/4", "format 2"),
    ("pin without a format", pin_changed(format=None), "pins/4", "format None"),
    ("pin of a format that only looks like 1", pin_changed(format=True), "pins/4", "format True"),
    ("pin without a digest", pin_changed(digest=None), "pins/4", "lacks digest"),
    ("pin with its epoch as text", pin_changed(epoch="2"), "pins/4", "lacks epoch"),
    ("pin with a truth for a number", pin_changed(partitions=True), "pins/4", "lacks partitions"),
    ("pin with a query that is a number", pin_changed(queryId=7), "pins/4", "lacks queryId"),
    ("pin of another batch", pin_changed(batch=5), "pins/4", "pins batch 5"),
    ("pin of another query", pin_changed(queryId=RUN), "pins/4", f"belongs to query {RUN}"),
    ("pin with another digest", pin_changed(digest=FIRST.digest), "tables/2", "has digest"),
    ("pin for other partitions", pin_changed(partitions=9), "tables/2", "number of partitions 8"),
    ("table missing", lambda home: (home / "_skewless/tables/2").unlink(), "tables/2", "is missing"),
    ("table empty", table_bytes(lambda _: b""), "tables/2", "cut short"),
    ("table cut short", table_bytes(lambda data: data[:-1]), "tables/2", "damaged"),
    ("table too long", table_bytes(lambda data: data + b"\0"), "tables/2", "damaged"),
    ("table with another body", table_bytes(lambda data: data[:-1] + b"\1"), "tables/2", "digest"),
    ("table of another kind",
     table_bytes(lambda data: b"ABCD" + data[4:]), "tables/2", "not written by Skewless"),
    ("table of another epoch",
     table_bytes(lambda _: SECOND.with_epoch(9).encode()), "tables/2", "has epoch 9"),
    ("another table", table_bytes(lambda _: Table(N, {1: 2}, epoch=2).encode()), "tables/2", "has digest"),
    ("epoch repeated", lambda home: write_pin(home, 5, SECOND), "pins/5", "epochs grow"),
    ("epoch gone back", lambda home: write_pin(home, 5, FIRST), "pins/5", "epochs grow"),
    ("partitions changed", table_and_pin(5, Table(9, epoch=3)), "pins/5", "is for 9 partitions"),
    ("partitions of the state changed",
     lambda home: write_batches(home, 6, 6, partitions=16), "pins/0", "lies in 16"),
    ("metadata of another query",
     lambda home: write(home / "metadata", json.dumps({"id": RUN})), "pins/0", "belongs to query"),
    ("metadata damaged",
     lambda home: write(home / "metadata", "{"), "metadata", "does not tell the query's id"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "file", "words"), [case[1:] for case in DAMAGES], ids=[case[0] for case in DAMAGES]
)
def test_damage_breaks_the_chain_and_is_named(
    home: Path, damage: Callable[[Path], None], file: str, words: str
) -> None:
    assert inspect(home).whole
    damage(home)
    found = inspect(home)
    assert not found.whole
    assert found.epoch_in_force is None
    assert any(file in problem and words in problem for problem in found.problems), found.problems
    assert all(problem.endswith(".") for problem in found.problems)
    done = run(str(home))
    assert done.exit_code == 1
    assert words in done.output.partition("chain: BROKEN")[2]


def test_every_problem_is_told_and_not_only_the_first(home: Path) -> None:
    pin_text("{")(home)
    (home / "_skewless/tables/1").unlink()
    assert [problem.split()[0] for problem in inspect(home).problems] == [
        "_skewless/pins/4",
        "_skewless/tables/1",
    ]


@pytest.mark.parametrize("provider", [PROVIDER, "org.apache.spark.Other"])
def test_a_stateless_query_may_have_any_numbers_of_partitions(home: Path, provider: str) -> None:
    (home / "state").rmdir()
    write_batches(home, 6, 6, provider=provider, partitions=200)
    assert inspect(home).whole
    table_and_pin(5, Table(9, epoch=3))(home)
    assert inspect(home).whole


def test_state_of_another_provider_is_not_placed_by_tables(home: Path) -> None:
    write_batches(home, 6, 6, provider="org.apache.spark.Other", partitions=200)
    assert inspect(home).whole


@pytest.mark.parametrize(
    "text",
    ["", "v1", "v1\n{", "v2\n[]", 'v1\n{"conf":7}', 'v1\n{"conf":{"spark.sql.shuffle.partitions":"x"}}'],
)
def test_offsets_that_cannot_be_read_leave_the_settings_unknown(home: Path, text: str) -> None:
    write(home / "offsets/6", text)
    found = inspect(home)
    assert (found.whole, found.provider, found.shuffle_partitions) == (True, None, None)
    assert "provider    unknown" in checkpoint_text(found)


def test_without_metadata_pins_are_not_held_against_a_query(home: Path) -> None:
    (home / "metadata").unlink()
    found = inspect(home)
    assert (found.whole, found.query_id) == (True, None)


def test_tables_that_no_pin_names_are_listed_and_do_no_harm(home: Path) -> None:
    for epoch in (3, 12):
        write_table(home, Table(N, epoch=epoch))
    write(home / "_skewless/tables/13", b"cut sh")
    found = inspect(home)
    assert (found.whole, found.unnamed, found.epoch_in_force) == (True, (3, 12, 13), 2)
    assert "unnamed tables: 3, 12, 13" in checkpoint_text(found)


def test_a_first_publish_that_crashed_leaves_a_whole_chain(tmp_path: Path) -> None:
    write(tmp_path / "metadata", json.dumps({"id": QUERY}))
    write_table(tmp_path, FIRST)
    found = inspect(tmp_path)
    assert (found.published, found.whole, found.epochs, found.unnamed) == (True, True, (), (1,))


def test_scratch_is_listed_with_its_bytes_and_does_no_harm(home: Path) -> None:
    write(home / f"_skewless/moves/7-{RUN}/0/default/1-3", b"x" * 1000)
    write(home / f"_skewless/moves/7-{RUN}/0/default/2-3", b"x" * 536)
    found = inspect(home)
    assert found.whole
    assert [(scratch.name, scratch.size_bytes) for scratch in found.scratch] == [(f"7-{RUN}", 1536)]
    assert f"scratch: 7-{RUN}, 1.5 kB" in checkpoint_text(found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 5}, "of batch 5"),
        ({"rows": "many"}, "lacks rows"),
        ({"sources": ["a"]}, "not numbers"),
        ({"format": 3}, "format 3"),
        ({"epoch": 7}, "swap to epoch 7 that no readable pin"),
    ],
)
def test_a_damaged_swap_record_is_a_note_and_not_a_problem(
    home: Path, changes: dict[str, Any], words: str
) -> None:
    write_swap(home, 4, 2, **changes)
    found = inspect(home)
    assert (found.whole, found.epochs[1].swap, len(found.notes)) == (True, None, 1)
    assert "_skewless/swaps/4" in found.notes[0]
    assert words in found.notes[0]
    assert f"note: {found.notes[0]}" in checkpoint_text(found)


def test_a_swap_record_that_outlived_its_purged_pin_is_not_worth_a_note(home: Path) -> None:
    for purged in ("pins/0", "tables/1"):
        (home / "_skewless" / purged).unlink()
    write_swap(home, 2, 1)
    found = inspect(home)
    assert (found.whole, found.notes) == (True, ())


def test_hidden_and_foreign_files_are_ignored(home: Path) -> None:
    for name in ("pins/.9.tmp", "pins/9.tmp", "tables/.9.crc", "swaps/x", "pins/readme"):
        write(home / "_skewless" / name, b"?")
    write(home / "offsets/.9.tmp", b"?")
    found = inspect(home)
    assert (found.whole, found.unnamed, found.newest_offset) == (True, (), 6)


def test_people_read_a_table_of_epochs(home: Path) -> None:
    done = run(str(home))
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == f"checkpoint  {home}"
    assert lines[2] == "batches     newest offset 6, newest commit 6"
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["1"] == ["1", "0", "1", "0", "8", "-", "-", "-", "-", "-"]
    assert rows["2"] == ["2", "4", "2", "0", "8", "120,000", "5.2", "MB", "2", "->", "3", "84", "1,310"]
    assert lines[-2:] == ["next batch: 7, under epoch 2", "chain: whole"]


def test_a_table_that_cannot_be_read_keeps_its_row(home: Path) -> None:
    (home / "_skewless/tables/2").unlink()
    rows = [line.split() for line in run(str(home)).output.splitlines()]
    assert ["2", "4", "?", "?", "8"] in [row[:5] for row in rows]


def test_machines_read_the_same_facts(home: Path) -> None:
    write_table(home, Table(N, epoch=3))
    done = run(str(home), "--json")
    facts = json.loads(done.output)
    assert (done.exit_code, facts["whole"], facts["problems"]) == (0, True, [])
    assert (facts["epoch_in_force"], facts["next_batch"], facts["waiting"], facts["unnamed"]) == (
        2,
        7,
        [],
        [3],
    )
    assert facts["epochs"][1]["pin"] == {
        "batch": 4,
        "epoch": 2,
        "digest": SECOND.digest,
        "partitions": N,
        "query_id": QUERY,
    }
    assert facts["epochs"][1]["swap"]["state_bytes"] == 5 << 20
    pin_text("{")(home)
    broken = run(str(home), "--json")
    facts = json.loads(broken.output)
    assert (broken.exit_code, facts["whole"], facts["epoch_in_force"], len(facts["problems"])) == (
        1,
        False,
        None,
        1,
    )


def test_a_checkpoint_without_our_folder_says_that_no_table_was_published(tmp_path: Path) -> None:
    write(tmp_path / "metadata", json.dumps({"id": QUERY}))
    write_batches(tmp_path, newest=1, committed=0)
    done = run(str(tmp_path))
    assert done.exit_code == 0
    assert "no table was ever published" in done.output
    assert done.output.endswith("chain: whole\n")
    assert json.loads(run(str(tmp_path), "--json").output)["published"] is False


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("absent", "is not a folder"),
        ("file", "is not a folder"),
        ("empty", "holds no checkpoint"),
    ):
        done = run(str(tmp_path / name))
        assert done.exit_code == 1
        assert isinstance(done.exception, SystemExit)
        assert words in done.output
        with pytest.raises(CheckpointError, match=words):
            inspect(tmp_path / name)


def test_a_file_that_cannot_be_opened_is_no_verdict_on_the_chain(home: Path) -> None:
    (home / "_skewless/pins/9").mkdir()
    done = run(str(home))
    assert done.exit_code == 1
    assert "cannot be read" in done.output
    assert "chain" not in done.output


@pytest.mark.parametrize("prefix", ["file:", "file://"])
def test_a_file_uri_is_a_local_path(home: Path, prefix: str) -> None:
    (home.parent / f"{home.name} b").symlink_to(home)
    assert inspect(f"{prefix}{home}%20b").whole


def test_another_file_system_is_judged_alike(home: Path) -> None:
    write(home / f"_skewless/moves/7-{RUN}/0/1-3", b"x" * 10)
    (home / "_skewless/tables/1").unlink()
    there = ArrowFolder(pyarrow.fs.LocalFileSystem(), str(home))
    assert inspect_folder(str(home), there) == inspect(home)


def test_a_uri_that_pyarrow_does_not_know_or_find_says_what_to_do() -> None:
    with pytest.raises(CheckpointError, match=r"ftp://host/x cannot be opened with pyarrow.*copy the folder"):
        inspect("ftp://host/x")
    with pytest.raises(CheckpointError, match="is not a folder"):
        inspect("mock://host/absent")


def test_without_pyarrow_another_file_system_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    with pytest.raises(CheckpointError, match=r"needs pyarrow: pip install.*copy the folder"):
        inspect("s3a://bucket/checkpoint")
