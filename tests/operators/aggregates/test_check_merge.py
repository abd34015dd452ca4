from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skewless.errors import MergeError, SettingError
from skewless.operators.aggregates.check_merge import check_merge

ROWS = pa.table({"v": [5.0, 1.0, 4.0, 2.0, 3.0, 8.0]})


def one(**columns: float | None) -> pa.Table:
    return pa.table({name: pa.array([value], pa.float64()) for name, value in columns.items()})


def total(table: pa.Table) -> pa.Table:
    return one(v=pc.sum(table["v"]).as_py())


def test_a_sum_passes_and_tells_its_seed() -> None:
    done = check_merge(total, total, ROWS)
    assert done.cuts == 20
    assert check_merge(total, total, ROWS, seed=done.seed) == done


def test_a_mean_of_means_is_not_associative() -> None:
    def mean(table: pa.Table) -> pa.Table:
        return one(v=pc.mean(table["v"]).as_py())

    with pytest.raises(MergeError, match=r"not associative.*seed 3"):
        check_merge(mean, mean, ROWS, seed=3)


def test_a_difference_is_not_commutative() -> None:
    def less(table: pa.Table) -> pa.Table:
        first, *others = table["v"].to_pylist()
        return one(v=first - sum(others))

    with pytest.raises(MergeError, match="not commutative"):
        check_merge(total, less, ROWS, seed=1)


def test_a_partial_that_looks_at_how_many_rows_there_are_is_not_that_of_the_whole() -> None:
    def squared(table: pa.Table) -> pa.Table:
        return one(v=float(table.num_rows) ** 2)

    with pytest.raises(MergeError, match=r"not that of the whole.*partial\(all rows\)"):
        check_merge(squared, total, ROWS, seed=1)


def test_a_type_that_depends_on_the_rows_is_named() -> None:
    def loose(table: pa.Table) -> pa.Table:
        return pa.table({"v": [None if table.num_rows < 3 else 1]})

    with pytest.raises(MergeError, match=r"different schemas.*int64.*null"):
        check_merge(loose, loose, ROWS, seed=1)


def test_pandas_functions_and_float_noise_and_rows_in_any_order() -> None:
    frame = pd.DataFrame({"g": list("ababab"), "v": [0.1, 0.7, 0.2, 0.1, 0.3, 0.9]})

    def by_letter(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.groupby("g", as_index=False, sort=False)["v"].sum()

    check_merge(by_letter, by_letter, frame, seed=5)
    with pytest.raises(MergeError):
        check_merge(by_letter, by_letter, frame, seed=5, tolerance=0.0, cuts=200)


def test_bad_samples_are_typed_errors() -> None:
    with pytest.raises(SettingError, match="three"):
        check_merge(total, total, ROWS.slice(0, 2))
    with pytest.raises(SettingError, match="list"):
        check_merge(total, total, [1, 2, 3])
