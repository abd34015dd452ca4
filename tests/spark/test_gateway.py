from __future__ import annotations

import json
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from skewless.errors import SessionError
from skewless.spark.gateway import Gateway


class JavaBatch:
    """What the JVM hands over: getters, arrays as little-endian bytes."""

    values = {  # noqa: RUF012
        "batchId": 7,
        "epoch": 2,
        "partitions": 2,
        "batchMs": 850,
        "rows": struct.pack("<2q", 5, 1 << 40),
        "bytes": struct.pack("<2q", 50, 90),
        "runMs": struct.pack("<2q", 12, -1),
        "startMs": struct.pack("<2q", 0, 30),
        "executors": struct.pack("<2i", 1, -1),
        "executorSlots": struct.pack("<2i", 2, 4),
        "localityWaitMs": 3000,
        "keyHashes": struct.pack("<3i", -7, 2147483647, 0),
        "keyRows": struct.pack("<3q", 4, 3, 1),
        "sides": "left",
        "rightRows": struct.pack("<3q", 1, 3, 0),
        "maxError": 1,
        "sampleRate": 0.25,
        "stateHashes": struct.pack("<2i", 0, -7),
        "stateBytes": struct.pack("<2q", 120, 1 << 41),
        "partitionStateBytes": struct.pack("<2q", 1 << 42, -1),
        "committedAt": 1700000000250,
        "executorIds": "1\n12",
        "executorBusyMs": struct.pack("<2q", 900, 1 << 40),
        "cpuMs": struct.pack("<2q", 7, -1),
        "remoteBytes": struct.pack("<2q", 20, 1 << 40),
        "snapshotVersions": struct.pack("<2q", 4, -2),
        "keyValues": '{"-7":"a \\"b\\" é"}',
    }

    def __getattr__(self, name: str) -> Any:
        return lambda: self.values[name]


class JavaGateway:
    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def check(self, session: object) -> None: ...

    def showMetrics(self, *arguments: object) -> bool:  # noqa: N802
        self.asked.append(arguments)
        return True

    def watch(self, *arguments: object) -> None:
        self.asked.append(arguments)

    def observed(self, *arguments: object) -> list[JavaBatch]:
        self.asked.append(arguments)
        return [JavaBatch()]

    def swaps(self, query: object) -> list[str]:
        return [json.dumps({"epoch": 3, "exportMs": 12, "query": query})]


def spark(java: object = None, context: object = None) -> Any:
    jvm = SimpleNamespace(io=SimpleNamespace(skewless=SimpleNamespace(Gateway=java or JavaGateway())))
    streams = SimpleNamespace(active=["a query"])
    return SimpleNamespace(
        _jsparkSession="session", _jvm=jvm, streams=streams, sparkContext=SimpleNamespace(_jsc=context)
    )


def test_an_observed_batch_crosses_as_whole_arrays() -> None:
    java = JavaGateway()
    [batch] = Gateway(spark(java)).observed("q", 6)
    assert java.asked == [("session", "q", 6)]  # asking switches nothing on
    assert (batch.batch, batch.epoch, batch.partitions, batch.batch_ms) == (7, 2, 2, 850)
    assert (batch.max_error, batch.sample_rate) == (1, 0.25)
    assert (batch.start_ms.tolist(), batch.executors.tolist(), batch.slots.tolist()) == (
        [0, 30],
        [1, -1],
        [2, 4],
    )
    assert batch.locality_wait_ms == 3000
    assert dict(zip(batch.executor_ids, batch.busy_ms.tolist(), strict=True)) == {"1": 900, "12": 1 << 40}
    assert (batch.cpu_ms.tolist(), batch.remote_bytes.tolist()) == ([7, -1], [20, 1 << 40])
    assert batch.snapshot_versions.tolist() == [4, -2]
    assert dict(zip(batch.state_hashes.tolist(), batch.state_bytes.tolist(), strict=True)) == {
        0: 120,
        -7: 1 << 41,
    }
    assert batch.partition_state_bytes.tolist() == [1 << 42, -1]
    assert batch.rows.tolist() == [5, 1 << 40]
    assert batch.bytes.tolist() == [50, 90]
    assert batch.run_ms.tolist() == [12, -1]
    assert batch.key_hashes.tolist() == [-7, 2147483647, 0]
    assert batch.key_hashes.dtype == np.int32
    assert batch.key_rows.tolist() == [4, 3, 1]
    assert (batch.sides, batch.right_rows.tolist()) == ("left", [1, 3, 0])
    assert batch.key_values == {-7: 'a "b" é'}


def test_swaps_come_as_dictionaries() -> None:
    assert Gateway(spark()).swaps(SimpleNamespace(_jsq="q")) == [{"epoch": 3, "exportMs": 12, "query": "q"}]


def test_what_the_loop_knows_is_shown_in_one_call() -> None:
    java = JavaGateway()
    assert Gateway(spark(java)).show_metrics("q", 0.25, None, 3)
    assert java.asked == [("session", "q", 0.25, None, 3)]


def test_every_loop_watches_under_a_name_of_its_own() -> None:
    java, query = JavaGateway(), SimpleNamespace(_jsq="query")
    for gateway in (Gateway(spark(java)), Gateway(spark(java))):
        gateway.watch(query, 50, True)
    (session, first, *rest), (_, second, *_) = java.asked
    assert (session, rest) == ("session", ["query", 50, True])
    assert first != second


def test_active_queries_are_those_of_the_session() -> None:
    assert Gateway(spark()).active() == ["a query"]


@pytest.mark.parametrize(
    ("context", "alive"),
    [
        (None, False),
        (SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)), True),
        (SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True)), False),
        (SimpleNamespace(sc=lambda: 1 / 0), False),
    ],
)
def test_a_session_that_cannot_be_asked_is_not_alive(context: object, alive: bool) -> None:
    assert Gateway(spark(context=context)).alive() is alive


def test_a_jar_without_the_call_is_told_as_such() -> None:
    gateway = Gateway(spark(SimpleNamespace(check=lambda session: None)))
    with pytest.raises(SessionError, match="jar"):
        gateway.observed("q", 0)
