"""A connector that reads many replicas."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from connector import metric, settled
from processes import launched

from fleet_load.load import Load
from fleet_load.measured import Measured, Spending
from fleet_load.pauses import Pauses
from fleet_load.replicas import BATCHES_A_SECOND, PARTITIONS, SECONDS, SETTLE_SECONDS
from pipeline.kafka import topics
from pipeline.local.processes.ports import free_port
from schemas.events import EventsRecord
from schemas.settings import Kafka, Settings

START_SECONDS = 120.0
NEWEST = 50
"""Records of each partition that tell the lag."""


def measured(bootstrap: str, replicas: int) -> Measured:
    prefix = f"bench-load-connector-{replicas}"
    asyncio.run(topics.apply(Settings(kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix=prefix))))
    port = free_port()
    with Load("frames", [str(replicas)]) as load, tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "kvlens.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{bootstrap}"\ntopic_prefix = "{prefix}"\n'
            f"[connector]\nmetrics_port = {port}\n"
            + "".join(
                f'[[replicas]]\nid = "replica-{number}"\nmodel = "bench"\nendpoint = "{endpoint}"\n'
                for number, endpoint in enumerate(load.heard("ready"))
            )
        )
        with launched(["connect", "--config", str(config)], dict(os.environ)) as process:
            deadline = time.monotonic() + START_SECONDS
            while not _connected(port, replicas):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the connector did not connect to every replica")
                time.sleep(1)
            settled(process.pid)
            load.tell("go")
            time.sleep(SETTLE_SECONDS)
            batches, records = _handled(port)
            spending, began = Spending(process.pid), time.monotonic()
            with Pauses(port) as pauses:
                time.sleep(SECONDS)
            spent, wall = spending.spent(), time.monotonic() - began
            later = _handled(port)
            lag = asyncio.run(_lag(bootstrap, f"{prefix}.events.v1"))
            lost = metric(port, "kvlens_connector_lost_batches_total")
            paced = load.ended()
    if lost:
        raise SystemExit(f"{lost:.0f} batches were lost: the figures would be of fewer batches")
    taken, rate = (later[0] - batches) / wall, (later[1] - records) / wall
    share = taken / (replicas * BATCHES_A_SECOND)
    return Measured("connector", replicas, share, spent, taken, rate, pauses.longest, lag, paced)


def _connected(port: int, replicas: int) -> bool:
    try:
        return metric(port, "kvlens_connector_source_connected{") == replicas
    except OSError:
        return False


def _handled(port: int) -> tuple[float, float]:
    """Return batches taken and records acknowledged."""
    return metric(port, "kvlens_connector_batches_total"), metric(port, "kvlens_connector_records_total")


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
