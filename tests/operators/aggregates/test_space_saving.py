from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from skewless.errors import AggregateError, SettingError
from skewless.operators.aggregates.merger import Merger, conform
from skewless.operators.aggregates.schemas import to_arrow
from skewless.operators.aggregates.space_saving import space_saving
from skewless.operators.aggregates.top_k import top_k


@pytest.mark.parametrize("seed", range(6))
def test_counts_lie_between_their_bounds_however_the_rows_are_cut(seed: int) -> None:
    draw = random.Random(seed)
    capacity = draw.choice([1, 5, 20, 60])
    values = [int(draw.paretovariate(0.9)) % 200 for _ in range(5000)]
    kind = StructType().add("item", "long").fields[0].dataType
    made = space_saving("v", capacity, kind)
    assert isinstance(made.schema, StructType)
    assert isinstance(made.result_schema, StructType)
    merger = Merger(made, to_arrow(made.schema), to_arrow(made.result_schema))
    draw.shuffle(values)
    parts = [values[i : i + 333] for i in range(0, len(values), 333)]
    partials = [merger.partial_of([pa.RecordBatch.from_pydict({"v": part})]) for part in parts]
    tree = merger.merged([merger.merged(partials[:7]), merger.merged(partials[7:])])
    found = {row["item"]: row for row in merger.result_of(tree).to_pylist()}
    exact = Counter(values)
    assert len(found) <= capacity
    error = tree["missed"][0].as_py()
    assert error <= len(values) / (capacity + 1)
    for item, count in exact.items():
        if item in found:
            assert found[item]["at_least"] <= count <= found[item]["at_most"]
        else:
            assert count <= error


def test_a_partial_with_room_is_exact() -> None:
    made = space_saving("v", 5, StructType().add("item", "string").fields[0].dataType)
    partial = made.partial(pa.table({"v": ["a", "b", "a", None]}))
    assert made.result is not None
    assert made.result(partial).to_pylist() == [
        {"item": "a", "at_least": 2, "at_most": 2},
        {"item": "b", "at_least": 1, "at_most": 1},
    ]


def test_bad_capacities_and_columns_are_refused() -> None:
    with pytest.raises(SettingError, match="capacity"):
        space_saving("v", 0)
    with pytest.raises(SettingError, match="by"):
        top_k("x", 3, StructType().add("v", "long"))


def test_what_a_function_gives_is_checked() -> None:
    schema = pa.schema([("n", pa.int32()), ("s", pa.string())])
    fits = conform(pa.table({"s": ["a"], "n": [1]}), schema, "what partial gave")
    assert fits.schema == schema
    for bad, why in (
        ({"n": [1]}, "columns"),
        ({"n": [1.5], "s": ["a"]}, "type double"),
        ({"n": [2**40], "s": ["a"]}, "does not fit"),
    ):
        with pytest.raises(AggregateError, match=why):
            conform(pa.table(bad), schema, "what partial gave")
    with pytest.raises(AggregateError, match="list"):
        conform([1], schema, "what partial gave")
