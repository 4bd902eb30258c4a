"""Process of load for the fleet agent: the records a replica agent would write, in Kafka, once a second.

Started with the broker, the topic and a number of replicas. Says `ready` when everything is built, writes
after `open` that the blocks of the replicas came, says `opened`, and writes for some seconds after `go`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterable

from aiokafka import AIOKafkaProducer
from large_fleet import LargeEngine

from connectors.kafka.topics import partition_of
from fleet_load.pace import Pace, say, wait_for
from fleet_load.replicas import BLOCKS, LOAD_SECONDS, PARTITIONS
from pipeline.residency.partition import PartitionState
from schemas.events import EventsRecord
from schemas.settings import Worker

Change = tuple[int, bytes, bytes]
"""Shard, key and value of a record."""


class Replicas:
    """The engines of one partition and the state that the replica agent would have of them."""

    def __init__(self, partition: int, engines: list[LargeEngine]) -> None:
        self._engines = engines
        self._state = PartitionState(partition, Worker(), shards=PARTITIONS)
        self._offset = 0

    def opened(self, at: float) -> list[Change]:
        changes = []
        for engine in self._engines:
            changes += self._after(engine.opened(), at)
        return changes

    def lived(self, at: float) -> list[Change]:
        """Return the records of the second that ends at `at`."""
        return self._after(
            (
                record
                for engine in self._engines
                for record in engine.little_records(engine.exchanged(1.0), at)
            ),
            at,
        )

    def _after(self, records: Iterable[EventsRecord], at: float) -> list[Change]:
        for record in records:
            for batch in record.batches:
                batch.ts = batch.received_at = at
            self._state.apply(self._offset, record)
            self._offset += 1
        return [*self._state.cut(at).residency]


async def main() -> None:
    bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    by_partition: list[list[LargeEngine]] = [[] for _ in range(PARTITIONS)]
    for number in range(count):
        engine = LargeEngine(number, BLOCKS, count)
        by_partition[partition_of(engine.name, PARTITIONS)].append(engine)
    began = time.time()
    fleet = [Replicas(number, engines) for number, engines in enumerate(by_partition)]
    opened = [change for replicas in fleet for change in replicas.opened(began)]
    seconds = [
        [change for replicas in fleet for change in replicas.lived(began + second)]
        for second in range(1, LOAD_SECONDS + 1)
    ]
    del fleet, by_partition
    gc.freeze()
    say("ready")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=8 << 20) as producer:
        wait_for("open")
        await _write(producer, topic, opened)
        say("opened")
        wait_for("go")
        pace = Pace(1)
        for changes in seconds:
            await asyncio.sleep(pace.pause())
            await _write(producer, topic, changes)
        pace.done()


async def _write(producer: AIOKafkaProducer, topic: str, changes: list[Change]) -> None:
    sent = [await producer.send(topic, value, key=key, partition=shard) for shard, key, value in changes]
    await asyncio.gather(*sent)


asyncio.run(main())
