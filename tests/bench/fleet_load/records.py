"""Process of load for a worker: the records a connector would publish, in Kafka, at their pace.

Started with the broker, the topic and a number of replicas. Says `ready` when everything is built, writes
after `open` what the replicas hold, says `opened`, and writes for some seconds after `go`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterable, Sequence

import msgspec
from aiokafka import AIOKafkaProducer
from large_fleet import LargeEngine

from connectors.kafka.topics import partition_of
from connectors.publish.encoding import RecordEncoding
from fleet_load.pace import Pace, say, wait_for
from fleet_load.replicas import BLOCKS, LOAD_SECONDS, PARTITIONS, RECORDS_A_SECOND
from schemas.events import EventsRecord
from schemas.settings import Kafka

STEPS_A_SECOND = 40
"""A connector looks for runs to publish every 25 ms."""
ENGINES_A_WRITE = 20
"""While they open: some 80 kB each."""

_encode = msgspec.msgpack.Encoder().encode
_ENCODING = RecordEncoding(Kafka())


def prepared(record: EventsRecord) -> EventsRecord:
    """Return the record with its events encoded: what is left is to say when it was."""
    for batch in record.batches:
        batch.events = msgspec.Raw(_encode(batch.events))  # type: ignore[assignment]
    record.first_seq, record.last_seq = record.batches[0].seq, record.batches[-1].seq
    return record


class Log:
    """The events topic, written in as few batches as a connector writes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type="zstd", max_batch_size=4 << 20
        )

    async def write(self, records: Iterable[EventsRecord], at: float) -> list[asyncio.Future[None]]:
        """Write the records as of a time; returns what to wait for."""
        builders = [self.producer.create_batch() for _ in range(PARTITIONS)]
        for record in records:
            for batch in record.batches:
                batch.ts = batch.received_at = at
            builders[partition_of(record.replica, PARTITIONS)].append(
                key=record.replica.encode(),
                value=_encode(record),
                timestamp=int(at * 1000),
                headers=_ENCODING.headers_of(record),
            )
        return [
            await self.producer.send_batch(builder, self._topic, partition=number)
            for number, builder in enumerate(builders)
            if builder.record_count()
        ]


async def opened(log: Log, records: Sequence[Sequence[EventsRecord]], at: float) -> None:
    """Write what the replicas hold: the records of each."""
    for begin in range(0, len(records), ENGINES_A_WRITE):
        some = records[begin : begin + ENGINES_A_WRITE]
        await asyncio.gather(*await log.write((record for each in some for record in each), at))


async def main() -> None:
    bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    engines = [LargeEngine(number, BLOCKS, count) for number in range(count)]
    held = [[prepared(record) for record in engine.opened()] for engine in engines]
    lives = [
        [
            prepared(record)
            for second in range(LOAD_SECONDS)
            for record in engine.little_records(engine.exchanged(1.0), second)
        ]
        for engine in engines
    ]
    gc.freeze()
    say("ready")
    log = Log(bootstrap, topic)
    async with log.producer:
        wait_for("open")
        await opened(log, held, time.time())
        say("opened")
        wait_for("go")
        pace = Pace(STEPS_A_SECOND)
        sent: list[asyncio.Future[None]] = []
        turns = STEPS_A_SECOND // RECORDS_A_SECOND
        for step in range(LOAD_SECONDS * STEPS_A_SECOND):
            await asyncio.sleep(pace.pause())
            number, turn = divmod(step, turns)
            sent = [future for future in sent if not future.done()]
            sent += await log.write((life[number] for life in lives[turn::turns]), time.time())
        await asyncio.gather(*sent)
        pace.done()


if __name__ == "__main__":
    asyncio.run(main())
