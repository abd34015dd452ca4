"""The partition function of Python RDDs alone; `integration/test_repartition.py` has it on executors."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.rdd import portable_hash

from skewless import RoutedPartitioner, Table
from skewless.errors import TableError


@pytest.fixture(autouse=True)
def seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # as Spark sets it for its tasks


def test_a_key_goes_where_the_table_says_and_else_where_pyspark_puts_it() -> None:
    route = RoutedPartitioner(Table(4, {7: 1}))
    for key in range(-20, 20):
        assert route(key) % 4 == (1 if key == 7 else portable_hash(key) % 4)


def test_another_number_of_partitions_is_refused_also_after_the_way_to_an_executor() -> None:
    route = RoutedPartitioner(Table(4, {7: 1}))
    assert route(7) % 4 == 1
    for one in (route, pickle.loads(pickle.dumps(route))):
        assert one == route
        for key in (7, 8):
            assert type(one(key) % 4) is int
            with pytest.raises(TableError, match="is for 4 partitions and partitionBy was given 8"):
                one(key) % 8


@pytest.mark.parametrize("table", [None, {7: 1}, 4])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(TableError, match=r"takes a skewless\.Table"):
        RoutedPartitioner(table)
