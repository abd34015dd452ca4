"""A table published to a running stream: pinned, durable, replayed; and what refuses one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import skewless
from skewless.errors import QueryError, TableError

N = 8
KEYS = 40
ROWS = 400


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Callable[[int], None]:
    """Adds the file of a batch: each batch is one file, so a batch's input is known."""
    folder = tmp_path / "source"
    folder.mkdir()

    def add(batch: int) -> None:
        rows = "\n".join(json.dumps({"k": f"k{i % KEYS}", "v": batch * ROWS + i}) for i in range(ROWS))
        (tmp_path / "staged").write_text(rows)
        (tmp_path / "staged").rename(folder / f"{batch:04}.json")

    return add


def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return (
        spark.readStream.schema("k string, v long")
        .option("maxFilesPerTrigger", 1)
        .json(str(tmp_path / "source"))
    )


class Sink:
    """Collects (batch, key, value, partition); a batch that runs again replaces what it gave before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, df: DataFrame, batch: int) -> None:
        self.batches[batch] = sorted(map(tuple, df.collect()))

    def partitions(self, batch: int, key: str) -> set[int]:
        return {p for k, _, p in self.batches[batch] if k == key}

    def values(self) -> Counter[int]:
        return Counter(v for rows in self.batches.values() for _, v, _ in rows)


def start(df: DataFrame, sink: Sink, tmp_path: Path) -> StreamingQuery:
    checkpoint = str(tmp_path / "checkpoint")
    return df.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()


def placed(df: DataFrame) -> DataFrame:
    return df.select("k", "v", F.spark_partition_id().alias("p"))


@pytest.fixture
def hashes(spark: SparkSession) -> dict[str, int]:
    df = spark.range(KEYS).selectExpr("concat('k', id) as k")
    return {r.k: r.h for r in df.select("k", skewless.key_hash("k").alias("h")).collect()}


def test_the_next_batch_runs_under_a_published_table_and_a_restart_goes_on_with_it(
    spark: SparkSession,
    balancer: skewless.Balancer,
    source: Callable[[int], None],
    hashes: dict[str, int],
    tmp_path: Path,
) -> None:
    sink = Sink()
    routed = placed(
        skewless.repartition(stream(spark, tmp_path), N, "k").mapInPandas(
            lambda frames: frames, "k string, v long"
        )
    )
    query = start(routed, sink, tmp_path)
    source(0)
    query.processAllAvailable()
    assert sink.partitions(0, "k1") == {hashes["k1"] % N}
    moved = (hashes["k1"] + 3) % N
    swap = balancer.publish(query, skewless.Table(N, {hashes["k1"]: moved, hashes["k2"]: (0, 4, 6)}))
    assert swap == skewless.Swap(epoch=1, batch=1)
    source(1)
    query.processAllAvailable()
    assert sink.partitions(1, "k1") == {moved}
    assert sink.partitions(1, "k2") <= {0, 4, 6}
    assert sink.partitions(1, "k3") == {hashes["k3"] % N}
    assert balancer.publish(query, skewless.Table(N)).epoch == 2
    assert balancer.publish(query, skewless.Table(N, {hashes["k1"]: 0})) == skewless.Swap(epoch=3, batch=3)
    for batch in (2, 3):
        source(batch)
        query.processAllAvailable()
    assert sink.partitions(2, "k1") == {hashes["k1"] % N}
    assert sink.partitions(3, "k1") == {0}
    loads = balancer.loads(query)
    assert [(load.batch, load.epoch) for load in loads] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert all(load.rows.sum() == ROWS for load in loads)
    query.stop()
    query = start(routed, sink, tmp_path)
    assert balancer.table(query) == skewless.Table(N, {hashes["k1"]: 0}, epoch=3)
    source(4)
    query.processAllAvailable()
    query.stop()
    assert sink.partitions(4, "k1") == {0}
    assert sink.values() == Counter(range(5 * ROWS))


def test_a_replayed_batch_runs_under_the_epoch_of_its_first_run(
    spark: SparkSession,
    balancer: skewless.Balancer,
    source: Callable[[int], None],
    hashes: dict[str, int],
    tmp_path: Path,
) -> None:
    sink = Sink()
    routed = placed(skewless.repartition(stream(spark, tmp_path), N, "k"))
    query = start(routed, sink, tmp_path)
    for batch in range(2):
        source(batch)
        query.processAllAvailable()
    first = dict(sink.batches)
    balancer.publish(query, skewless.Table(N, dict.fromkeys(hashes.values(), 3)))
    query.stop()
    commit = tmp_path / "checkpoint" / "commits" / "1"
    commit.unlink()
    (commit.parent / ".1.crc").unlink(missing_ok=True)
    query = start(routed, sink, tmp_path)
    query.processAllAvailable()
    assert commit.exists(), "batch 1 was not replayed"
    assert sink.batches == first
    source(2)
    query.processAllAvailable()
    query.stop()
    assert {p for _, _, p in sink.batches[2]} == {3}


def test_a_repartition_inside_foreach_batch_takes_the_published_table(
    spark: SparkSession,
    balancer: skewless.Balancer,
    source: Callable[[int], None],
    hashes: dict[str, int],
    tmp_path: Path,
) -> None:
    sink = Sink()

    def body(df: DataFrame, batch: int) -> None:
        sink(placed(skewless.repartition(df, N, "k")), batch)

    query = start(stream(spark, tmp_path), body, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="no exchange of it is routed"):
        balancer.publish(query, skewless.Table(N, {1: 1}))
    source(0)
    query.processAllAvailable()
    balancer.publish(query, skewless.Table(N, {hashes["k5"]: 1, hashes["k6"]: 1}))
    source(1)
    query.processAllAvailable()
    query.stop()
    assert sink.partitions(0, "k5") == {hashes["k5"] % N}
    assert sink.partitions(1, "k5") == sink.partitions(1, "k6") == {1}
    assert sink.values() == Counter(range(2 * ROWS))


def test_a_refused_table_leaves_the_old_one_in_force(
    spark: SparkSession,
    balancer: skewless.Balancer,
    source: Callable[[int], None],
    hashes: dict[str, int],
    tmp_path: Path,
) -> None:
    sink = Sink()
    query = start(placed(skewless.repartition(stream(spark, tmp_path), N, "k")), sink, tmp_path)
    balancer.publish(query, skewless.Table(N, {hashes["k1"]: 2}))
    with pytest.raises(TableError, match="is for 5 partitions"):
        balancer.publish(query, skewless.Table(5, {1: 1}))
    with pytest.raises(TableError, match="maxEntries"):
        balancer.publish(query, skewless.Table.of_moves(N, range(100_001), [0] * 100_001))
    with pytest.raises(TableError, match=r"skewless\.Table"):
        balancer.publish(query, {1: 1})  # type: ignore[arg-type]
    source(0)
    query.processAllAvailable()
    assert sink.partitions(0, "k1") == {2}
    query.stop()
    with pytest.raises(QueryError, match="stopped"):
        balancer.publish(query, skewless.Table(N))


def test_a_stateful_query_behind_a_repartition_takes_moves_and_refuses_splits(
    spark: SparkSession,
    balancer: skewless.Balancer,
    source: Callable[[int], None],
    hashes: dict[str, int],
    tmp_path: Path,
) -> None:
    counts: dict[str, int] = {}

    def body(df: DataFrame, batch: int) -> None:
        counts.update({r.k: r["count"] for r in df.collect()})

    routed = skewless.repartition(stream(spark, tmp_path), N, "k").groupBy("k").count()
    writer = routed.writeStream.outputMode("update").foreachBatch(body)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    source(0)
    query.processAllAvailable()
    with pytest.raises(QueryError, match="keeps one state per key"):
        balancer.publish(query, skewless.Table(N, {hashes["k1"]: (1, 2)}))
    balancer.publish(query, skewless.Table(N, {hashes["k1"]: 2, hashes["k2"]: 3}))
    source(1)
    query.processAllAvailable()
    query.stop()
    assert set(counts.values()) == {2 * ROWS // KEYS}


def test_a_damaged_table_or_pin_stops_the_query_with_the_files_name(
    spark: SparkSession,
    balancer: skewless.Balancer,
    source: Callable[[int], None],
    hashes: dict[str, int],
    tmp_path: Path,
) -> None:
    sink = Sink()
    routed = placed(skewless.repartition(stream(spark, tmp_path), N, "k"))
    query = start(routed, sink, tmp_path)
    balancer.publish(query, skewless.Table(N, {hashes["k1"]: 2}))
    source(0)
    query.processAllAvailable()
    query.stop()
    home = tmp_path / "checkpoint" / "_skewless"
    for damaged in (home / "tables" / "1", home / "pins" / "0"):
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        (damaged.parent / f".{damaged.name}.crc").unlink()
        source(int(damaged.parent.name == "pins") + 1)
        query = start(routed, sink, tmp_path)
        with pytest.raises(Exception, match=f"{damaged.parent.name}/{damaged.name} cannot be trusted"):
            query.processAllAvailable()
        damaged.write_bytes(whole)
    query = start(routed, sink, tmp_path)
    query.processAllAvailable()
    query.stop()
    assert sink.values() == Counter(range(3 * ROWS))
    assert sink.partitions(2, "k1") == {2}
