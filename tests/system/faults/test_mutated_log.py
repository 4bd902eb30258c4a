"""A worker that meets mutated records by the hundred lives, tells of each, and keeps honest sources exact.

KVLENS_MUTATED_RECORDS sets how many there are.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from itertools import count, islice
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from connectors.kafka.consumer import started_consumer
from connectors.kafka.topics import partition_of, topic_name
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.verify.against_log import check_log
from schemas.set_aside import SetAsideRecord
from tests.support.inputs.mutants import mutated
from tests.support.inputs.source_walks import Walk

pytestmark = pytest.mark.night

MUTATED = int(os.environ.get("KVLENS_MUTATED_RECORDS", "600"))
SECONDS = 120.0 + MUTATED / 100
PARTITIONS = 8
HONEST_RECORDS = 200
BAD, *HONEST = islice((f"s-{n}" for n in count() if not partition_of(f"s-{n}", PARTITIONS)), 3)
"""Sources of one partition."""
encode = msgspec.msgpack.encode


def log(began: float) -> list[tuple[bytes, bytes]]:
    """(key, value) of honest records, and of mutated ones spread among them."""
    rng = random.Random(7)
    honest = [
        (name.encode(), encode(record))
        for pair in zip(
            *(Walk(1, replica=n, began=began).records(HONEST_RECORDS) for n in HONEST), strict=False
        )
        for name, record in zip(HONEST, pair, strict=True)
    ]
    fine = [encode(record) for record in Walk(2, replica=BAD, began=began).records(HONEST_RECORDS)]
    bad = [(BAD.encode(), mutated(rng.choice(fine), rng, times=rng.choice([1, 2]))) for _ in range(MUTATED)]
    each = -(-len(bad) // len(honest))
    return [one for at, good in enumerate(honest) for one in (good, *bad[at * each : (at + 1) * each])]


async def produce(laboratory: Any, records: Sequence[tuple[bytes, bytes]]) -> None:
    kafka = laboratory.settings.kafka
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True, linger_ms=20
    ) as producer:
        for key, value in records:
            await producer.send(topic_name(kafka, "events"), value, key=key, partition=0)
        await producer.flush()


async def set_aside(laboratory: Any) -> list[SetAsideRecord]:
    """Everything in the topic of records set aside."""
    kafka = laboratory.settings.kafka
    place = TopicPartition(topic_name(kafka, "set_aside"), 0)
    found: list[SetAsideRecord] = []
    async with started_consumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed", enable_auto_commit=False
    ) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        [end] = (await consumer.end_offsets([place])).values()
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [msgspec.msgpack.decode(record.value, type=SetAsideRecord) for record in records]
    return found


@pytest.fixture(scope="module")
def laboratory(broker: EmbeddedBroker, store: EmbeddedStore, laboratories: Callable[..., Any]) -> Any:
    laboratory = laboratories(broker, store, idle_carry_seconds=60.0)
    yield laboratory
    laboratory.close()


def test_a_worker_lives_through_mutated_records(laboratory: Any) -> None:
    records = log(time.time() - 3 * 3600)
    asyncio.run(produce(laboratory, records))
    worker = laboratory.worker()
    laboratory.wait_applied(len(records) // 2, SECONDS)
    worker.kill()
    worker = laboratory.worker()
    laboratory.wait_applied(len(records), SECONDS)
    laboratory.wait_followed(SECONDS)
    assert worker.end() == 0
    assert "Traceback" not in worker.said()
    letters = asyncio.run(set_aside(laboratory))
    offsets = [letter.offset for letter in letters]
    assert len(offsets) == len(set(offsets)), "each of them once, though a worker was killed"
    assert MUTATED // 5 < len(offsets) < MUTATED
    for letter in letters:
        assert records[letter.offset][1].startswith(letter.value)
        assert letter.length == len(records[letter.offset][1])
    findings = asyncio.run(
        check_log(laboratory.settings, datetime.now(timezone.utc), until=None, patience=0.0)
    )
    assert findings.set_aside.total() == len(offsets)
    # A killed worker forgets which minutes and hours it wrote in, and mutants write in any.
    differing = {table for table in findings.differing if not table.endswith(("_1m", "_1h"))}
    assert not differing, [one for one in findings.kept if one.table in differing][:3]
    assert findings.compared["occupancy_10s"] > 1000
    rows = laboratory.query(
        "SELECT DISTINCT replica, undecodable_events > 0 "
        f"FROM {laboratory.settings.clickhouse.database}.stream_health_10s FINAL WHERE undecodable_events > 0"
    )
    assert (BAD, 1) in [tuple(row) for row in rows]
