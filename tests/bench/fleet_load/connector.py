"""A connector that reads many replicas."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from connector import metric, settled
from processes import launched

from fleet_load.installation import Installation
from fleet_load.load import Load
from fleet_load.measured import Measured, Spending
from fleet_load.pauses import Pauses
from fleet_load.replicas import BATCHES_A_SECOND, PARTITIONS, SECONDS, SETTLE_SECONDS
from pipeline.local.processes.ports import free_port
from schemas.events import EventsRecord

START_SECONDS = 120.0
NEWEST = 50
"""Records of each partition that tell the lag."""


@dataclass(frozen=True)
class Connectors:
    """Processes of `kvlens connect`, each with its shard, and the ports of their pages."""

    processes: list[subprocess.Popen[bytes]]
    ports: list[int]

    def metric(self, name: str) -> float:
        return sum(metric(port, f"kvlens_connector_{name}") for port in self.ports)

    def wait_connected(self, replicas: int) -> None:
        """Return when every replica is connected and all code is loaded."""
        deadline = time.monotonic() + START_SECONDS
        while not self._connected(replicas):
            if any(process.poll() is not None for process in self.processes) or time.monotonic() > deadline:
                raise SystemExit("not every replica was connected to")
            time.sleep(1)
        for process in self.processes:
            settled(process.pid)

    def _connected(self, replicas: int) -> bool:
        try:
            return self.metric("source_connected{") == replicas
        except OSError:
            return False


@contextmanager
def connectors(installation: Installation, endpoints: Sequence[str], count: int = 1) -> Iterator[Connectors]:
    """Run so many connectors, which share the replicas at these endpoints, while the block lasts."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        processes, ports = [], []
        for number in range(count):
            port = free_port()
            config = Path(directory) / f"kvlens-{number}.toml"
            config.write_text(
                f'[connector]\nmetrics_port = {port}\nshard = "{number}/{count}"\n'
                + "".join(
                    f'[[replicas]]\nid = "replica-{index}"\nmodel = "bench"\nendpoint = "{endpoint}"\n'
                    for index, endpoint in enumerate(endpoints)
                )
            )
            arguments = ["connect", "--config", str(config)]
            processes.append(
                stack.enter_context(launched(arguments, installation.environment, installation.checkout))
            )
            ports.append(port)
        yield Connectors(processes, ports)


def measured(installation: Installation, replicas: int, count: int = 1) -> Measured:
    """Measure so many connectors that share the replicas."""
    installation.prepare()
    with (
        Load("frames", [str(replicas)]) as load,
        connectors(installation, load.heard("ready"), count) as running,
    ):
        running.wait_connected(replicas)
        load.tell("go")
        time.sleep(SETTLE_SECONDS)
        batches, records = _handled(running)
        spending, began = Spending([process.pid for process in running.processes]), time.monotonic()
        with ExitStack() as asking:
            pauses = [asking.enter_context(Pauses(port)) for port in running.ports]
            time.sleep(SECONDS)
        spent, wall = spending.spent(), time.monotonic() - began
        later = _handled(running)
        lag = asyncio.run(_lag(installation.bootstrap, installation.topic("events")))
        lost = running.metric("lost_batches_total")
        paced = load.ended()
    if lost:
        raise SystemExit(f"{lost:.0f} batches were lost: the figures would be of fewer batches")
    taken, rate = (later[0] - batches) / wall, (later[1] - records) / wall
    share = taken / (replicas * BATCHES_A_SECOND)
    name, pause = "connector" if count == 1 else f"connectors {count}", max(each.longest for each in pauses)
    return Measured(name, replicas, share, spent, taken, rate, pause, lag, paced)


def _handled(running: Connectors) -> tuple[float, float]:
    """Return batches taken and records acknowledged."""
    return running.metric("batches_total"), running.metric("records_total")


async def _lag(bootstrap: str, topic: str) -> float:
    """Return how long after its last batch the latest of the newest records was given to Kafka, seconds."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    decode = msgspec.msgpack.Decoder(EventsRecord).decode
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    lags = [0.0]
    async with consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for partition, end in ends.items():
            consumer.seek(partition, max(0, end - NEWEST))
            newest = await consumer.getmany(partition, timeout_ms=2000, max_records=NEWEST)
            for message in newest.get(partition, ()):
                batches = [batch for batch in decode(message.value).batches if batch.seq is not None]
                lags += [message.timestamp / 1000 - batch.ts for batch in batches[-1:]]
    return max(lags)
