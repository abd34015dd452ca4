"""The table alone: its rules, its bytes, its routes, and the laws of diff and composition."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless import Change, Split, Table, compose, diff
from skewless.errors import TableError
from skewless.model.split import slot

N = 6
HASHES = st.integers(-(1 << 31), (1 << 31) - 1)
TARGETS = st.one_of(
    st.integers(0, N - 1),
    st.permutations(range(N)).flatmap(lambda p: st.integers(1, N).map(lambda w: tuple(p[:w]))),
    st.permutations(range(N)).flatmap(
        lambda p: st.sampled_from([(1, 2), (1, 6), (2, 2), (2, 3), (3, 2), (4, 1)]).map(
            lambda shape: Split(tuple(p[: shape[0] * shape[1]]), shape[0])
        )
    ),
)
ONE_COLUMN = st.builds(
    Table,
    st.just(N),
    st.dictionaries(HASHES, TARGETS.filter(lambda t: getattr(t, "right_width", 1) == 1), max_size=12),
    st.integers(0, 99),
)
TABLES = st.builds(Table, st.just(N), st.dictionaries(HASHES, TARGETS, max_size=12), st.integers(0, 99))


@pytest.mark.parametrize(
    ("partitions", "entries", "message"),
    [
        (4, {1: 4}, "target 4 is not a partition"),
        (4, {1: -1}, "target -1 is not a partition"),
        (4, {1: ()}, "empty target list"),
        (4, {1: (2, 2)}, "one target twice"),
        (4, {1 << 31: 0}, "does not fit 32 bits"),
        (0, {}, "0 partitions"),
        (-3, {}, "-3 partitions"),
        ((1 << 24) + 1, {}, "partitions"),
        (4, {"user-7": 1}, "'user-7' is a str, and a table is keyed on 32-bit hashes"),
        (4, {"7": 1}, "'7' is a str"),
        (4, {1.5: 1}, r"1\.5 is a float"),
        (4, {None: 1}, "None is a NoneType"),
        (4, {True: 1}, "True is a bool"),
        (4, {1: 2.0}, r"the entry of 1 leads to 2\.0"),
        (4, {1: None}, "leads to None"),
        (4, {1: "23"}, "leads to '23'"),
        (4, {1: (2, None)}, "leads to"),
        (4, [(1, 2)], "entries are a list"),
        ("4", {}, "partitions is '4'"),
        (4.0, {}, r"partitions is 4\.0"),
        (None, {}, "partitions is None"),
        (True, {}, "partitions is True"),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused(
    partitions: int, entries: dict[int, object], message: str
) -> None:
    with pytest.raises(TableError, match=message):
        Table(partitions, entries)  # type: ignore[arg-type]


def test_a_duplicate_hash_is_refused() -> None:
    with pytest.raises(TableError, match="two entries"):
        Table.of_moves(4, [5, 5], [1, 2])


@pytest.mark.parametrize(
    "call",
    [
        lambda: Table.of_moves(4, ["user"], [1]),
        lambda: Table.of_moves(4, [1.0], [1]),
        lambda: Table.of_moves(4, [1], [None]),
        lambda: Table(4).route(["user"]),
        lambda: Table(4).route([0.5]),
        lambda: Table(4).targets("user"),  # type: ignore[arg-type]
        lambda: Table(4).targets(1 << 40),
        lambda: Table(4).route([1 << 40]),
        lambda: Table(4, epoch=1.5),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_whole_number_is_refused_by_our_own_error(call: Callable[[], object]) -> None:
    with pytest.raises(TableError):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = Table(np.int64(4), {np.int32(7): np.int64(3), np.int64(9): np.array([1, 2])})  # type: ignore[dict-item,arg-type]
    assert numpy == Table(4, {7: 3, 9: (1, 2)})
    assert numpy.targets(np.int32(9)) == (1, 2)  # type: ignore[arg-type]
    assert Table(4).route([]).tolist() == []


def test_a_negative_epoch_is_refused() -> None:
    with pytest.raises(TableError, match="epoch"):
        Table(4, epoch=-1)


def test_a_table_cannot_be_changed() -> None:
    table = Table(4, {1: 2})
    with pytest.raises(AttributeError):
        table.partitions = 5
    with pytest.raises(ValueError, match="read-only"):
        table.move_targets[0] = 3


@given(TABLES)
def test_bytes_read_back_to_an_equal_table(table: Table) -> None:
    assert Table.decode(table.encode()) == table
    assert pickle.loads(pickle.dumps(table)) == table
    assert hash(Table.decode(table.encode())) == hash(table)


@given(TABLES, st.data())
def test_any_flipped_bit_is_found(table: Table, data: st.DataObject) -> None:
    damaged = bytearray(table.encode())
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(TableError):
        Table.decode(bytes(damaged))


@given(TABLES, st.data())
def test_any_truncation_or_extension_is_found(table: Table, data: st.DataObject) -> None:
    whole = table.encode()
    with pytest.raises(TableError):
        Table.decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(TableError):
        Table.decode(whole + b"\0")


def test_a_future_format_and_a_huge_length_are_named() -> None:
    whole = bytearray(Table(4, {1: 2}).encode())
    with pytest.raises(TableError, match="format 3"):
        Table.decode(bytes(whole[:4] + struct.pack("<I", 3) + whole[8:]))
    with pytest.raises(TableError, match="declares"):
        Table.decode(bytes(whole[:8] + struct.pack("<Q", 1 << 62) + whole[16:]))


@given(ONE_COLUMN, st.lists(HASHES, max_size=30))
def test_routes_follow_the_entries_and_else_the_hash(table: Table, others: list[int]) -> None:
    entries = dict(table)
    hashes = [*entries, *others]
    for key_hash, route in zip(hashes, table.route(hashes, map_partition=2, mappers=9).tolist(), strict=True):
        assert route in entries.get(key_hash, (key_hash % N,))
        assert table.targets(key_hash) == entries.get(key_hash, (key_hash % N,))


@given(TABLES, TABLES, TABLES)
@settings(max_examples=50)
def test_diffs_compose_and_apply(a: Table, b: Table, c: Table) -> None:
    assert compose(diff(a, b), diff(b, c)) == diff(a, c)
    assert diff(a.updated(diff(a, b)), b) == []
    assert diff(a, a) == []


def test_steps_in_the_wrong_order_do_not_compose() -> None:
    with pytest.raises(TableError, match="in the order"):
        compose([Change(1, (0,), (1,))], [Change(1, (2,), (3,))])


def test_tables_of_different_width_are_not_compared() -> None:
    with pytest.raises(TableError, match="partitions"):
        diff(Table(4), Table(5))


@given(HASHES, st.integers(2, 9), st.integers(1, 40))
def test_mappers_take_turns_over_the_targets_of_a_split(key_hash: int, width: int, mappers: int) -> None:
    one, widths = np.array([key_hash], np.int32), np.array([width], np.int32)
    chosen = [int(slot(one, mapper, mappers, widths, None)[0]) for mapper in range(mappers)]
    counts = np.bincount(chosen, minlength=width)
    assert counts.max() - counts.min() <= 1


def test_content_spreads_a_key_of_one_mapper_over_all_targets() -> None:
    contents = np.arange(8000, dtype=np.int32)
    key, widths = np.full(8000, 77, np.int32), np.full(8000, 8, np.int32)
    counts = np.bincount(slot(key, 0, 1, widths, contents), minlength=8)
    assert counts.min() > 800
    assert counts.max() < 1200
