from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from connectors.kafka.consumer import stop_consumer
from connectors.kafka.errors import BrokerUnreachable, TopicMissing
from connectors.kafka.security import client_options
from connectors.kafka.topics import partition_of
from connectors.order.records import Mention, mention_of
from connectors.process.tls_files import CertificateUnreadable
from connectors.publish import growth
from connectors.publish import publisher as publisher_module
from connectors.publish.publisher import Publisher
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.events import Batch, Closed, EventsRecord, Stored
from schemas.json_form import from_json
from schemas.settings import Connector, Kafka, Settings
from tests.support.growing_topics import grow
from tests.support.patience import PATIENCE

PARTITIONS = 4


class Recorder:
    """Telemetry that remembers what it was told."""

    def __init__(self) -> None:
        self.records = 0
        self.delays: list[tuple[int, float, int]] = []
        self.failures: list[str] = []
        self.abandoned = 0
        self.grew: list[tuple[str, int, int]] = []

    def broker_unreachable(self, bootstrap_servers: str, reason: str) -> None: ...

    def published(self, records: int, size: int) -> None:
        self.records += records

    def publish_delayed(self, partition: int, seconds: float, waiting_bytes: int) -> None:
        self.delays.append((partition, seconds, waiting_bytes))

    def publish_failed(self, partition: int, reason: str) -> None:
        self.failures.append(reason)

    def records_abandoned(self, records: int) -> None:
        self.abandoned += records

    def log_grew(self, topic: str, known: int, now: int, message: str) -> None:
        assert "kvlens topics copy" in message
        self.grew.append((topic, known, now))


def _settings(broker: EmbeddedBroker, **kafka: Any) -> Settings:
    prefix = f"test-{secrets.token_hex(4)}"
    return Settings(
        kafka=Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=prefix, **kafka),
        connector=Connector(send_timeout_seconds=60.0),
    )


async def _create(broker: EmbeddedBroker, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        configuration = {"max.message.bytes": "8388608"}
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1, topic_configs=configuration)])
    finally:
        await admin.close()


async def _log(broker: EmbeddedBroker, topic: str) -> list[Any]:
    """Everything in the topic, by partition and offset."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", fetch_max_bytes=64 << 20
    )
    await consumer.start()
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        messages: list[Any] = []
        while any([await consumer.position(place) < ends[place] for place in places]):
            for found in (await consumer.getmany(timeout_ms=500)).values():
                messages += found
    finally:
        await stop_consumer(consumer)
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def _record(replica: str, seq: int, size: int = 8, dp_rank: int = 0) -> EventsRecord:
    batch = Batch(seq, 1.0, 2.0, [Stored(seq.to_bytes(8, "big") * (size // 8), 16)], 1)
    return EventsRecord(replica, "m", "m/s/t", dp_rank, 77, [batch], seq, seq)


def _by_replica(log: Sequence[Any]) -> dict[str, list[int | None]]:
    seqs: dict[str, list[int | None]] = {}
    for message in log:
        record = msgspec.msgpack.decode(message.value, type=EventsRecord)
        assert message.key.decode() == record.replica
        assert message.partition == partition_of(record.replica, PARTITIONS)
        seqs.setdefault(record.replica, []).append(record.first_seq)
    return seqs


async def test_partitions_that_the_log_gets_are_told_and_replicas_stay_where_they_are(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "LOOK_SECONDS", 0.2)
    told = Recorder()
    publisher = Publisher(_settings(broker), told)
    await _create(broker, publisher.topic)
    await publisher.start()
    try:
        replicas = [f"replica-{number}" for number in range(20)]
        for replica in replicas:
            publisher.add(_record(replica, 0))
        await grow(broker.bootstrap_servers, publisher.topic, PARTITIONS + 3)
        deadline = time.monotonic() + PATIENCE
        while publisher.unknown_partitions != 3:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert told.grew[0] == (publisher.topic, PARTITIONS, PARTITIONS + 3)
        for replica in replicas:
            publisher.add(_record(replica, 1))
        assert await publisher.drain(PATIENCE) == 0
    finally:
        await publisher.stop()
    assert _by_replica(await _log(broker, publisher.topic)) == {replica: [0, 1] for replica in replicas}


async def test_acknowledged_records_are_told_with_their_offsets(broker: EmbeddedBroker) -> None:
    settings = _settings(broker)
    told: list[tuple[int, int, Sequence[Mention]]] = []
    publisher = Publisher(settings, Recorder(), lambda *said: told.append(said))
    await _create(broker, publisher.topic)
    await publisher.start()
    for seq in range(200):
        publisher.add(_record(f"replica-{seq % 7}", seq, size=4096))
        if seq % 60 == 0:
            assert await publisher.drain(10) == 0
    assert await publisher.drain(10) == 0
    assert all(publisher.is_idle(partition) for partition in range(publisher.partitions))
    await publisher.stop()
    places: dict[int, list[tuple[int, Mention]]] = {}
    for partition, offset, mentions in told:
        first = offset - len(mentions) + 1
        places.setdefault(partition, []).extend(enumerate(mentions, first))
    logged: dict[int, list[tuple[int, Mention]]] = {}
    for message in await _log(broker, publisher.topic):
        record = msgspec.msgpack.decode(message.value, type=EventsRecord)
        logged.setdefault(message.partition, []).append((message.offset, mention_of(record)))
    assert places == logged
    assert sum(map(len, places.values())) == 200


async def test_other_topics_are_written_in_as_many_batches_as_it_takes(broker: EmbeddedBroker) -> None:
    settings = _settings(broker)
    publisher = Publisher(settings, Recorder())
    other = f"{publisher.topic}.other"
    await _create(broker, publisher.topic)
    await _create(broker, other)
    await publisher.start()
    assert await publisher.partitions_of(other) == PARTITIONS
    records = [(f"key-{number}".encode(), bytes(1000)) for number in range(1500)]
    await publisher.write(other, 2, records)
    with pytest.raises(TopicMissing, match="kvlens topics apply"):
        await publisher.partitions_of(f"{other}.not")
    await publisher.stop()
    log = await _log(broker, other)
    assert [(message.partition, message.key, message.value) for message in log] == [(2, *r) for r in records]


async def test_record_is_keyed_and_described(broker: EmbeddedBroker) -> None:
    settings = _settings(broker)
    publisher = Publisher(settings, Recorder())
    await _create(broker, publisher.topic)
    await publisher.start()
    record = _record("räplica-0", 41, dp_rank=3)
    notices = EventsRecord("räplica-0", "m", "m/s/t", 3, 77, [Batch(None, 1.5, 1.5, [Closed("removed")])])
    publisher.add(record)
    publisher.add(notices)
    assert await publisher.drain(10) == 0
    assert publisher.unacknowledged_bytes == 0
    await publisher.stop()
    first, second = await _log(broker, publisher.topic)
    assert msgspec.msgpack.decode(first.value, type=EventsRecord) == record
    assert msgspec.msgpack.decode(second.value, type=EventsRecord) == notices
    assert first.key == "räplica-0".encode()
    assert first.partition == partition_of("räplica-0", PARTITIONS)
    assert dict(first.headers) == {
        "content-type": b"application/msgpack",
        "ce_specversion": b"1.0",
        "ce_type": b"kvlens.events.v1",
        "ce_source": "räplica-0/3".encode(),
        "ce_id": "räplica-0/3/77/41".encode(),
        "ce_time": b"1970-01-01T00:00:02.000000Z",
    }
    assert dict(second.headers)["ce_id"] == "räplica-0/3/77/n1500000".encode()
    assert dict(second.headers)["ce_time"] == b"1970-01-01T00:00:01.500000Z"


def test_partition_of_a_replica_never_changes() -> None:
    """State is bound to partitions, so these are literal: what Kafka's Java client gives."""
    assert {replica: partition_of(replica, 8) for replica in ("vllm-0", "vllm-1", "sglang-a")} == {
        "vllm-0": 4,
        "vllm-1": 1,
        "sglang-a": 7,
    }


async def test_json_records_say_so(broker: EmbeddedBroker) -> None:
    settings = _settings(broker, record_format="json", compression="none")
    publisher = Publisher(settings, Recorder())
    await _create(broker, publisher.topic)
    await publisher.start()
    publisher.add(_record("r", 0))
    assert await publisher.drain(10) == 0
    await publisher.stop()
    (message,) = await _log(broker, publisher.topic)
    assert dict(message.headers)["content-type"] == b"application/json"
    assert from_json(message.value, EventsRecord) == _record("r", 0)


async def test_large_record_goes_out_between_small_ones(broker: EmbeddedBroker) -> None:
    settings = _settings(broker, compression="none")
    publisher = Publisher(settings, Recorder())
    await _create(broker, publisher.topic)
    await publisher.start()
    for seq in range(3):
        publisher.add(_record("r", seq, size=(7 << 20) if seq == 1 else 8))
    assert await publisher.drain(20) == 0
    await publisher.stop()
    log = await _log(broker, publisher.topic)
    assert _by_replica(log) == {"r": [0, 1, 2]}


async def test_missing_topic_is_said_in_one_line(broker: EmbeddedBroker) -> None:
    settings = _settings(broker)
    publisher = Publisher(settings, Recorder())
    with pytest.raises(TopicMissing) as raised:
        await publisher.start()
    await publisher.stop()
    topic = f"{settings.kafka.topic_prefix}.events.v1"
    assert str(raised.value) == f"topic {topic} does not exist; run `kvlens topics apply`"


async def test_unreachable_broker_fails_the_start_by_name_and_cause(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    publisher = Publisher(Settings(kafka=Kafka(bootstrap_servers=address)), Recorder())
    with pytest.raises(BrokerUnreachable, match=f"no Kafka broker answers at {address} .*connection refused"):
        await publisher.start()


@pytest.mark.night
async def test_killed_broker_costs_no_record_no_repetition_and_no_order(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "DELAY_REPORT_SECONDS", 0.5)
    broker = EmbeddedBroker(tmp_path, free_port())
    await asyncio.to_thread(broker.start)
    try:
        recorder = Recorder()
        publisher = Publisher(_settings(broker), recorder)
        await _create(broker, publisher.topic)
        await publisher.start()
        replicas = [f"replica-{number}" for number in range(6)]
        fed = 0

        async def feed(count: int) -> None:
            nonlocal fed
            for _ in range(count):
                for replica in replicas:
                    publisher.add(_record(replica, fed, size=2000))
                fed += 1
                await asyncio.sleep(0.002)

        await feed(200)
        await asyncio.to_thread(broker.kill)
        await feed(200)
        deadline = time.monotonic() + 60
        while publisher.keeps_up or not (recorder.delays or recorder.failures):
            assert time.monotonic() < deadline, "nobody is told that the broker is gone"
            await asyncio.sleep(0.05)
        assert not publisher.keeps_up
        assert recorder.delays or recorder.failures
        starting = asyncio.create_task(asyncio.to_thread(broker.start))
        await feed(200)
        await starting
        assert await publisher.drain(120) == 0
        assert publisher.keeps_up
        await publisher.stop()
        assert _by_replica(await _log(broker, publisher.topic)) == {
            replica: list(range(600)) for replica in replicas
        }
        assert recorder.records == 600 * len(replicas)
    finally:
        await asyncio.to_thread(broker.kill)


@pytest.mark.night
async def test_what_waits_is_bounded_and_a_stop_gives_up_in_time(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "MAX_UNACKNOWLEDGED_BYTES", 1 << 20)
    broker = EmbeddedBroker(tmp_path, free_port())
    await asyncio.to_thread(broker.start)
    recorder = Recorder()
    publisher = Publisher(_settings(broker), recorder)
    try:
        await _create(broker, publisher.topic)
        await publisher.start()
    finally:
        await asyncio.to_thread(broker.kill)
    added = 0
    while not publisher.full:
        await asyncio.wait_for(publisher.room(), 60)
        publisher.add(_record("r", added, size=100_000))
        added += 1
    assert added == 11
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(publisher.room(), 0.5)
    assert publisher.full
    began = time.monotonic()
    assert await publisher.drain(0.5) == 11
    await publisher.stop()
    assert time.monotonic() - began < 300
    assert recorder.abandoned == 11


def test_security_settings_become_client_options(tmp_path: Path) -> None:
    assert client_options(Kafka(bootstrap_servers="a:1,b:2")) == {
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "PLAINTEXT",
    }
    sasl = Kafka(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="u", sasl_password="p"
    )
    arguments = client_options(sasl)
    assert arguments["ssl_context"].check_hostname
    assert (arguments["sasl_mechanism"], arguments["sasl_plain_username"]) == ("SCRAM-SHA-512", "u")
    assert arguments["sasl_plain_password"] == "p"
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(CertificateUnreadable, match=missing):
        client_options(Kafka(security_protocol="SSL", ssl_cafile=missing))
