"""Asking whether a user may write with a transactional id disturbs nobody who does."""

from __future__ import annotations

import secrets

from aiokafka import TopicPartition

from connectors.kafka.consumer import started_consumer
from pipeline.kafka import topics
from pipeline.kafka.transactions import may_write, transactional_id
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.worker.checkpoint.log import CheckpointLog, Record
from schemas.settings import Kafka, Settings


async def test_a_writer_commits_although_it_is_asked_for_its_right(broker: EmbeddedBroker) -> None:
    name = f"asked-{secrets.token_hex(4)}"
    kafka = Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=name)
    await topics.apply(Settings(kafka=kafka))
    source, saved = f"{name}.events.v1", f"{name}.checkpoints.replica.v1"
    # Nobody has written with this one so far.
    await may_write(kafka, [transactional_id(name, source, 0)])
    log = CheckpointLog(kafka, group=name, topic=source, partition=0)
    await log.open()
    try:
        for number in range(3):
            await may_write(kafka, [transactional_id(name, source, 0)])
            await log.commit(number, [Record(saved, 0, b"key", b"%d" % number)])
    finally:
        await log.close()
    partition = TopicPartition(saved, 0)
    async with started_consumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        values: list[bytes] = []
        while len(values) < 3:
            found = await consumer.getmany(partition, timeout_ms=1000)
            values += [record.value for record in found.get(partition, ())]
    assert values == [b"0", b"1", b"2"]
