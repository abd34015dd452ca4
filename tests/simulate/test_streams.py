"""Streams: the same keys each time they are read, the laws they promise, Spark's hashes, and bad input."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewless.errors import ColumnError, SettingError, SkewlessError
from skewless.simulate.streams import keyhash
from skewless.simulate.streams.generators import (
    Drawn,
    bursts,
    drifting_zipf,
    fluctuating,
    from_weights,
    lognormal_1,
    lognormal_2,
    zipf,
    zipf_shares,
)
from skewless.simulate.streams.parquet import ParquetStream
from skewless.simulate.streams.stream import Stream, first_tuples, from_array, in_memory

VECTORS = Path(__file__).parent.parent / "vectors"

GENERATORS: dict[str, Callable[[int], Stream]] = {
    "zipf": lambda m: zipf(m, 1000, 1.0),
    "drifting": lambda m: drifting_zipf(m, keys=1000, round_tuples=10_000),
    "fluctuating": lambda m: fluctuating(m, keys=2000, interval=7000),
    "bursts": lambda m: bursts(m, keys=500, every=3000),
    "log-normal": lognormal_1,
}


def all_of(stream: Stream) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int32), *stream.chunks()])


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS.keys())
@pytest.mark.parametrize("tuples", [0, 1, 50_000])
def test_a_generator_gives_as_many_tuples_as_asked_and_the_same_each_time(
    make: Callable[[int], Stream], tuples: int
) -> None:
    stream = make(tuples)
    keys = all_of(stream)
    assert len(keys) == tuples == stream.tuples
    assert np.array_equal(keys, all_of(stream))
    assert np.array_equal(keys, all_of(in_memory(stream)))
    assert keys.max(initial=-1) < len(stream.hashes)


def test_zipf_keys_come_as_often_as_the_law_says() -> None:
    counts = np.bincount(all_of(zipf(1_000_000, 50, 1.2)), minlength=50)
    expected = 1_000_000 * zipf_shares(50, 1.2)
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected))


def test_another_seed_gives_other_keys_and_other_hashes() -> None:
    one, other = zipf(1000, 100, 1.0, seed=1), zipf(1000, 100, 1.0, seed=2)
    assert not np.array_equal(all_of(one), all_of(other))
    assert not np.array_equal(one.hashes, other.hashes)


def test_the_log_normal_streams_have_the_published_number_of_keys_and_share_of_the_hottest() -> None:
    """PKG paper, Table 1: 16k keys and 14.71 %, 1.1k keys and 7.01 %, in 10M tuples; the share does not
    depend on the number."""
    for make, share in ((lognormal_1, 0.1471), (lognormal_2, 0.0701)):
        assert make(500_000).counts().max() / 500_000 == pytest.approx(share, rel=0.02)


def test_in_the_drifting_stream_the_coldest_keys_become_the_hottest() -> None:
    keys = all_of(drifting_zipf(20_000, keys=100, z=2.0, round_tuples=10_000))
    assert np.bincount(keys[:8000]).argmax() == 0
    assert np.bincount(keys[8000:10_000]).argmax() == 99
    assert np.bincount(keys[10_000:18_000]).argmax() == 0


def test_fluctuation_changes_some_worker_by_at_least_the_rate() -> None:
    stream = fluctuating(2_000_000, keys=5000, f=0.3, interval=1_000_000, workers=5)
    keys, home = all_of(stream), stream.hashes.astype(np.int64) % 5
    before, after = (np.bincount(home[part], minlength=5) for part in (keys[:1_000_000], keys[1_000_000:]))
    assert np.max(np.abs(after - before) / after) > 0.28
    still = fluctuating(2_000_000, keys=5000, f=0.0, interval=1_000_000, workers=5)
    keys = all_of(still)
    before, after = (np.bincount(home[part], minlength=5) for part in (keys[:1_000_000], keys[1_000_000:]))
    assert np.max(np.abs(after - before) / after) < 0.02


def test_fluctuation_moves_the_keys_that_are_hot_now_not_those_that_were_at_first() -> None:
    stream = fluctuating(5, keys=200_000, f=100.0, interval=1, workers=5)
    assert isinstance(stream, Drawn)
    hottest = [set(np.argsort(-shares)[:50].tolist()) for _, shares in stream.stages()]
    assert [len(before & after) for before, after in itertools.pairwise(hottest)] == pytest.approx(
        [0] * 4, abs=3
    )


def test_bursts_raise_keys_that_are_cold_by_the_law() -> None:
    keys = all_of(bursts(100_000, keys=1000, z=1.0, every=10_000, height=0.2))
    hottest = [int(np.bincount(part).argmax()) for part in np.split(keys, 10)]
    assert len(set(hottest)) >= 8


def test_hashes_are_spark_s() -> None:
    """Values that Spark 4.2 gives: `SELECT hash('Spark', array(123), 2)` is its own documented example."""
    chained = keyhash.of_int32s([2], keyhash.of_int32s([123], keyhash.of_texts(["Spark"])))
    assert chained.tolist() == [-1321691492]
    assert keyhash.of_int32s([1]).tolist() == [-559580957]
    assert keyhash.of_int64s([1]).tolist() == [-1712319331]


def vectors() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_key_hashes", VECTORS / "make_key_hashes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDED: dict[str, list[int]] = json.loads((VECTORS / "key_hashes.json").read_text())


@pytest.mark.parametrize("column", RECORDED)
def test_a_parquet_column_hashes_as_spark_recorded_it(column: str, tmp_path: Path) -> None:
    plain, int96 = vectors().write(tmp_path)
    stream = ParquetStream(int96 if column == "int96" else plain, column)
    numbers = all_of(stream)
    assert stream.hashes[numbers].tolist() == RECORDED[column]
    assert stream.name_of(int(numbers[-1])) == "null"


def test_the_recorded_hashes_cover_every_column_and_more_than_one_value() -> None:
    assert set(RECORDED) == {*vectors().columns(), "int96"}
    assert all(len(set(hashes)) > 2 for hashes in RECORDED.values())


@pytest.mark.parametrize(
    "column",
    ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
     "string", "binary", "date", "timestamp_us"],
)  # fmt: skip
def test_an_array_hashes_as_spark_recorded_its_type(column: str) -> None:
    values = vectors().columns()[column][:-1]
    keys = values.to_pylist() if column in ("string", "binary") else values.to_numpy(zero_copy_only=False)
    stream = from_array(keys)
    assert stream.hashes[stream.numbers].tolist() == RECORDED[column][:-1]


def test_dates_and_times_may_be_python_s_own() -> None:
    days, times = [date(1970, 1, 2), date(2024, 2, 29)], [datetime(1970, 1, 1, 0, 0, 1), datetime(1969, 1, 1)]
    assert from_array(days).hashes.tolist() == keyhash.of_int32s([1, 19782]).tolist()
    assert from_array(times).hashes.tolist() == keyhash.of_int64s([10**6, -365 * 86_400 * 10**6]).tolist()
    abroad = datetime(1970, 1, 1, 2, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    assert from_array([abroad]).hashes.tolist() == keyhash.of_int64s([10**6]).tolist()


def test_floats_that_spark_takes_for_one_key_are_one_key(tmp_path: Path) -> None:
    values = np.array([0.0, -0.0, np.nan, -np.nan, 1.0], dtype=np.float32)
    pq.write_table(pa.table({"key": values}), tmp_path / "f.parquet")
    stream = ParquetStream(tmp_path / "f.parquet", "key")
    assert all_of(stream).tolist() == [0, 0, 1, 1, 2]
    assert [stream.name_of(key) for key in range(3)] == ["0.0", "nan", "1.0"]
    assert len(stream.hashes) == 3


def test_one_long_key_does_not_make_the_others_as_long(tmp_path: Path) -> None:
    """As an array of fixed width these keys would take 80 GB."""
    keys = ["x" * 1_000_000, *(f"user{i}" for i in range(20_000)), "x" * 1_000_000]
    pq.write_table(pa.table({"key": keys}), tmp_path / "long.parquet")
    for stream in (
        from_array(keys),
        from_array(np.array(keys, dtype=object)),
        in_memory(ParquetStream(tmp_path / "long.parquet", "key")),
    ):
        assert all_of(stream).tolist() == [*range(20_001), 0]
        assert stream.name_of(20_000) == "user19999"
        assert stream.hashes.tolist() == keyhash.of_texts(keys[:-1]).tolist()


def test_a_folder_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    for name, keys in (
        ("part-1.parquet", [3, 1]),
        ("part-0.parquet", [1, 2]),
        ("day=2/part-0.parquet", [5]),
        ("_temporary/part-9.parquet", [99]),
        (".part-8.parquet", [98]),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"key": pa.array(keys, pa.int32())}), tmp_path / name)
    (tmp_path / "_SUCCESS").write_text("")
    stream = ParquetStream(tmp_path, "key")
    assert [stream.name_of(key) for key in all_of(stream)] == ["5", "1", "2", "3", "1"]
    assert stream.tuples == 5
    assert stream.hashes.tolist() == keyhash.of_int32s([5, 1, 2, 3]).tolist()
    pq.write_table(pa.table({"key": ["text"]}), tmp_path / "part-2.parquet")
    with pytest.raises(ColumnError, match="one schema"):
        ParquetStream(tmp_path, "key")


def test_an_array_of_any_plain_type_becomes_a_stream() -> None:
    for keys in (["b", "a", "b"], [5, 3, 5], [0.5, -1.0, 0.5], np.array(["b", "a", "b"], dtype=object)):
        stream = from_array(keys)
        assert all_of(stream).tolist() == [0, 1, 0]
        assert stream.name_of(0) == str(keys[0])


def test_a_parquet_column_is_read_in_order_and_its_hashes_are_those_of_its_type(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["x", "é", None, "x"],
            "narrow": pa.array([1, 2, 3, 1], pa.int32()),
            "wide": pa.array([1, 2, 3, 1], pa.int64()),
            "kind": pa.array(["p", "q", "q", "p"]).dictionary_encode(),
            "nested": [[1], [2], [3], [4]],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    text = ParquetStream(tmp_path / "t.parquet", "text")
    assert all_of(text).tolist() == [0, 1, 2, 0]
    assert text.hashes.tolist() == [*keyhash.of_texts(["x", "é"]).tolist(), 42]
    assert text.name_of(2) == "null"
    for column, expected in (
        ("narrow", keyhash.of_int32s([1, 2, 3])),
        ("wide", keyhash.of_int64s([1, 2, 3])),
    ):
        stream = ParquetStream(tmp_path / "t.parquet", column)
        assert all_of(stream).tolist() == [0, 1, 2, 0]
        assert stream.hashes.tolist() == expected.tolist()
    assert all_of(ParquetStream(tmp_path / "t.parquet", "kind")).tolist() == [0, 1, 1, 0]
    with pytest.raises(ColumnError, match="nested"):
        ParquetStream(tmp_path / "t.parquet", "nested")
    with pytest.raises(ColumnError, match="It has text"):
        ParquetStream(tmp_path / "t.parquet", "absent")


def test_a_file_that_is_missing_or_not_parquet_is_a_setting_error(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("not parquet")
    for path in (tmp_path / "note.txt", tmp_path / "absent.parquet", tmp_path):
        with pytest.raises(SettingError):
            ParquetStream(path, "key")


@pytest.mark.parametrize(
    "make",
    [
        lambda: zipf(10, 10, -1.0),
        lambda: zipf(10, 10, float("nan")),
        lambda: zipf(10, 0, 1.0),
        lambda: zipf(-1, 10, 1.0),
        lambda: from_weights(10, np.array([1.0, np.nan])),
        lambda: from_weights(10, np.array([1.0, -1.0])),
        lambda: from_weights(10, np.array([0.0, 0.0])),
        lambda: from_weights(10, np.array([])),
        lambda: fluctuating(10, f=-1),
        lambda: bursts(10, height=1.0),
        lambda: from_array([1.0, float("nan")]),
        lambda: from_array(["a", None]),
        lambda: from_array([1j]),
        lambda: from_array(["a", 1]),
        lambda: from_array([Decimal("1.5")]),
        lambda: from_array(["\ud800"]),
        lambda: from_array(np.array(["2024-01-01", "NaT"], dtype="datetime64[D]")),
        lambda: zipf(10, 10, 1.0, seed=-1),
        lambda: zipf(10, 10, 1.0, seed=1 << 31),
        lambda: fluctuating(10, seed=-1),
        lambda: bursts(10, seed=1 << 64),
        lambda: lognormal_1(10, seed=-1),
        lambda: first_tuples(zipf(10, 10, 1.0), -1),
    ],
)
def test_bad_input_is_an_error_of_ours(make: Callable[[], Stream]) -> None:
    with pytest.raises(SkewlessError):
        make()


def test_the_beginning_of_a_stream_is_its_beginning() -> None:
    stream = zipf(600_000, 100, 1.0)
    assert np.array_equal(all_of(first_tuples(stream, 300_000)), all_of(stream)[:300_000])


def test_a_log_normal_stream_is_what_one_draw_of_all_keys_would_be() -> None:
    stream, drawn = lognormal_1(300_000), np.random.default_rng(0).lognormal(1.789, 2.366, 300_000)
    whole = from_array(np.rint(drawn).astype(np.int64))
    assert np.array_equal(np.concatenate(list(stream.chunks())), whole.numbers)
    assert np.array_equal(stream.hashes, whole.hashes)
    assert [stream.name_of(k) for k in range(50)] == [whole.name_of(k) for k in range(50)]
