"""The loop over a join with a key that is most of its rows: it is split, told of, and goes home when it
cools."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_gateway import FakeQuery
from loop_scene import EAGER, Scene
from skewless.control.pace import Pace
from skewless.errors import QueryError, SettingError, TableError
from skewless.model.split import Split
from skewless.model.table import Table
from skewless.policies import splits

HOT = 0
JOIN = {HOT: 600, **dict.fromkeys(range(1, 41), 10)}  # 60 % of the rows are of one key
COOL = {HOT: 1, **dict.fromkeys(range(1, 41), 10)}


def join(sides: str = "left", right: int = 6, **more: object) -> FakeQuery:
    return FakeQuery(partitions=8, sides=sides, right_rows={HOT: right}, **more)  # type: ignore[arg-type]


def scene(query: FakeQuery, policy: str = "auto", **pace: int) -> Scene:
    quick = Pace(patience=1, cooldown_seconds=0, calm=3, **pace)  # type: ignore[arg-type]
    return Scene(query, settings=replace(EAGER, pace=quick, splits=policy))


def test_who_has_not_asked_for_splits_is_told_of_a_join_that_could() -> None:
    told = 'splits="auto") could split it'
    assert told in scene(join(), "off").see(JOIN, 3).why
    assert told not in scene(join(), "off").see(COOL, 3).why, "no key is too heavy"
    assert told not in scene(join(sides=""), "off").see(JOIN, 3).why, "no side may be split"
    assert told not in scene(join(), "auto").see(JOIN, 3).why


@pytest.mark.parametrize("policy", splits.names())
def test_a_hot_key_of_a_join_is_split_and_goes_home_when_it_cools(policy: str) -> None:
    seen = scene(join(values={HOT: "Chengdu"}), policy)
    record = seen.see(JOIN, 8)
    table = seen.query.pins[-1][1]
    grid = table.split_of(HOT)
    assert grid is not None
    assert grid.side == "left"
    [split] = record.splits
    assert (split.key_hash, split.value, split.side, split.targets) == (
        HOT,
        "Chengdu",
        "left",
        grid.targets,
    )
    assert split.copied_rows == 6 * (len(grid) - 1)
    assert split.gain is not None
    assert split.gain > 0.2
    slow, fast = record.batches[0].batch_ms, record.batches[-1].batch_ms
    assert fast < slow * (0.6 if policy == "pkg" else 0.35)
    assert record.errors == {}
    record = seen.see(COOL, 25)
    assert not seen.query.pins[-1][1].has_splits
    assert record.splits == ()
    assert any("whole again" in str(swap) for swap in record.swaps)
    assert record.errors == {}
    swaps = len(record.swaps)
    assert len(seen.see(COOL, 20).swaps) == swaps, "and then it is quiet"


def test_what_a_split_saves_is_measured_in_the_batches_after_it() -> None:
    seen = scene(join())
    record = seen.see(JOIN, 10)
    first = record.swaps[0]
    gain = record.gain(first)
    whole = record.batches[0].batch_ms
    assert gain is not None
    after = [
        batch.batch_ms for batch in record.batches if batch.epoch == first.epoch and batch.batch > first.batch
    ]
    assert gain == pytest.approx(whole / after[0], rel=0.05)


def test_a_key_that_grows_keeps_its_targets() -> None:
    seen = scene(join())
    seen.see({**JOIN, HOT: 120}, 6)
    narrow = seen.query.pins[-1][1].targets(HOT)
    seen.see({**JOIN, HOT: 2000}, 6)
    wide = seen.query.pins[-1][1].targets(HOT)
    assert 1 <= len(narrow) < len(wide)
    assert wide[: len(narrow)] == narrow


def test_the_right_side_is_split_where_only_it_may_be() -> None:
    seen = scene(join("right", right=590))
    seen.see(JOIN, 6)
    grid = seen.query.pins[-1][1].split_of(HOT)
    assert grid is not None
    assert grid.side == "right"


def test_a_key_on_the_side_that_must_be_copied_is_moved_or_left_but_never_split() -> None:
    seen = scene(join("left", right=594))
    seen.see(JOIN, 10)
    assert not any(table.has_splits for _, table in seen.query.pins)


@pytest.mark.parametrize("off", [{"policy": "off"}, {"sides": ""}])
def test_nothing_is_split_where_it_is_off_or_the_query_is_no_join(off: dict[str, str]) -> None:
    seen = scene(join(off.get("sides", "left")), off.get("policy", "auto"))
    record = seen.see(JOIN, 10)
    assert not any(table.has_splits for _, table in seen.query.pins)
    assert record.splits == ()


@pytest.mark.parametrize("refusal", [TableError("no splits here."), QueryError("no splits here.")])
def test_a_query_that_refuses_a_split_still_has_its_keys_moved(refusal: Exception) -> None:
    query = join()
    seen = scene(query)
    publish = seen.gateway.publish

    def refuse(of: FakeQuery, table: bytes) -> tuple[int, int]:
        if Table.decode(table).has_splits:
            raise refusal
        return publish(of, table)

    seen.gateway.publish = refuse  # type: ignore[method-assign]
    assert seen.see(JOIN).why.startswith("splits no key from now on:")
    crowded = {key * 8: 50 for key in range(8)}  # all at home in one partition
    record = seen.see(crowded, 4)
    assert len(query.pins) == 1
    assert not query.pins[0][1].has_splits
    assert record.batches[-1].imbalance < 0.1


def test_a_split_that_was_published_by_hand_is_left_alone_by_moves() -> None:
    query = join("either")
    query.publish(Table(8, {HOT: Split.grid([[0, 3], [4, 5]])}))
    seen = scene(query, "off")
    seen.see({**JOIN, 8: 50, 16: 50, 24: 50}, 6)
    for _, table in query.pins:
        assert table.split_of(HOT) == Split.grid([[0, 3], [4, 5]])
    assert len(query.pins) > 1, "other keys were moved"


def test_status_report_and_log_name_the_split(caplog: pytest.LogCaptureFixture) -> None:
    from skewless.report.page import page

    seen = scene(join(values={HOT: "Chengdu"}))
    with caplog.at_level("INFO", logger="skewless"):
        record = seen.see(JOIN, 6)
    width = record.splits[0].width
    words = f'"Chengdu" (hash 0): left side over {width} partitions (0 '
    assert words in str(seen.loop.status())
    assert f"{6 * (width - 1)} rows and" in str(seen.loop.status())
    assert "split " + words in caplog.text
    html = page(seen.loop.status())
    assert "Split keys" in html
    assert "&quot;Chengdu&quot; (hash 0)" in html


def test_a_setting_that_is_no_policy_is_refused_where_it_is_given() -> None:
    with pytest.raises(Exception, match="there is no split policy 'wide'"):
        replace(EAGER, splits="wide")
    with pytest.raises(SettingError, match='Give "auto", "off"'):
        replace(EAGER, splits=3)
