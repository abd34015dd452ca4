"""Weights as a file: read back as written, or refused in words."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import ForecastError
from skewless.forecast import gru
from skewless.forecast.weights import MAGIC, Arrays, checked, load, pack, save, unpack


def weights(keys: int = 3) -> Arrays:
    windows = np.random.default_rng(0).dirichlet(np.ones(keys + 1), 20)
    return {**gru.initial(windows, seed=1, hidden=4), "key_hashes": np.arange(keys, dtype=np.int32)}


def test_weights_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    save(tmp_path / "new" / "q.gru", weights())
    found = load(tmp_path / "new" / "q.gru")
    assert found is not None
    assert found.keys() == weights().keys()
    assert all(np.array_equal(found[name], array) for name, array in weights().items())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["q.gru"]


def test_no_file_is_no_weights(tmp_path: Path) -> None:
    assert load(tmp_path / "none.gru") is None


@given(st.integers(0, len(pack(weights())) - 1))
def test_weights_cut_short_anywhere_are_refused(length: int) -> None:
    with pytest.raises(ForecastError, match=r"no weights of Skewless|damaged or cut short"):
        unpack(pack(weights())[:length])


@given(st.integers(0, len(pack(weights())) - 1), st.integers(1, 255))
def test_no_damaged_byte_goes_unseen(at: int, change: int) -> None:
    data = bytearray(pack(weights()))
    data[at] ^= change
    with pytest.raises(ForecastError):
        unpack(bytes(data))


def test_weights_of_another_version_are_refused_by_number() -> None:
    data = bytearray(pack(weights()))
    data[len(MAGIC) : len(MAGIC) + 2] = struct.pack("<H", 7)
    with pytest.raises(ForecastError, match="version 7, this release reads 1"):
        unpack(bytes(data))


@pytest.mark.parametrize(
    "header", [b"[", b"[[1]]", b'[["mean","|O",[1]]]', b'[["mean","<f8",[-1]]]', b'[["mean","<f8",[99]]]']
)
def test_a_header_that_makes_no_sense_is_refused(header: bytes) -> None:
    with pytest.raises(ForecastError, match="makes no sense"):
        unpack(struct.pack("<6sHII", MAGIC, 1, zlib.crc32(header), len(header)) + header)


@pytest.mark.parametrize(
    "change",
    [
        {"output": np.zeros((2, 2), dtype=np.float32)},
        {"key_hashes": np.zeros(0, dtype=np.int32)},
        {"mean": np.full(4, np.nan, dtype=np.float32)},
    ],
)
def test_weights_that_do_not_fit_each_other_are_refused(change: Arrays) -> None:
    with pytest.raises(ForecastError, match=r"do not fit|not finite"):
        checked({**weights(), **change})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ForecastError, match=r"cannot be written to .*file"):
        save(tmp_path / "file" / "q.gru", weights())
