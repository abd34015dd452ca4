"""A real Kafka broker on loopback, in a process of its own, with its data in a folder that is thrown away.

Separate from the tests because they and the example start the same broker.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

from integration.conftest import ROOT

JARS = ROOT / "build" / "kafka" / "jars"
CONNECTOR = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
STARTED = "Kafka Server started"
QUICK = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def jars() -> Path:
    """The broker's jars and Spark's connector, fetched from Maven Central once."""
    if not (JARS / "complete").exists():
        done = subprocess.run(
            [str(ROOT / "build" / "sbt"), "kafka/jars"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"the jars of Kafka cannot be fetched:\n{done.stdout}{done.stderr}"
    return JARS


def connector() -> str:
    """What a session needs in spark.jars to read and write topics."""
    return ",".join(str(jar) for jar in sorted(jars().glob("*.jar")) if jar.name.startswith(CONNECTOR))


class Broker:
    """One broker that is its own controller (KRaft)."""

    def __init__(self, home: Path) -> None:
        self.log = home / "broker.log"
        self.address, controller = (f"127.0.0.1:{port}" for port in _free_ports(2))
        settings = home / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"controller.quorum.voters=1@{controller}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            f"log.dirs={home / 'data'}\n"
            "num.partitions=3\n"
            "offsets.topic.replication.factor=1\n"
            "offsets.topic.num.partitions=1\n"
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        java = ["java", *QUICK, "-cp", f"{jars()}/*"]
        with self.log.open("wb") as log:
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
                stdout=log,
                stderr=log,
                check=True,
            )
            self.process = subprocess.Popen(
                [*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log, start_new_session=True
            )
        self._await()

    def _await(self) -> None:
        for _ in range(600):
            if STARTED in self.log.read_text():
                return
            assert self.process.poll() is None, f"the broker ended at once:\n{self.tail}"
            time.sleep(0.1)
        self.stop()
        raise AssertionError(f"the broker did not start in a minute:\n{self.tail}")

    @property
    def tail(self) -> str:
        """The end of its log, for those who look why a test failed."""
        return "\n".join(self.log.read_text().splitlines()[-20:])

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
