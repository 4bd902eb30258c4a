from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from connectors.kafka.consumer import stop_consumer
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.directory import DirectoryInUse
from pipeline.local.processes.child_process import ProcessFailed
from pipeline.local.processes.ports import PortInUse


async def _create(servers: str, topic: str, **configs: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1, topic_configs=configs)])
    finally:
        await admin.close()


async def _produce(servers: str, topic: str, values: list[bytes], transaction: str | None = None) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        acks="all",
        enable_idempotence=True,
        max_request_size=10 << 20,
        transactional_id=transaction,
    )
    await producer.start()
    try:
        if transaction is None:
            for value in values:
                await producer.send_and_wait(topic, value, key=value[:16], partition=1)
        else:
            async with producer.transaction():
                for value in values:
                    await producer.send(topic, value, key=value, partition=1)
    finally:
        await producer.stop()


async def _consume(servers: str, topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=10 << 20,
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 1)])
        values: list[bytes] = []
        while len(values) < count:
            record = await asyncio.wait_for(consumer.getone(), 60)
            values.append(record.value)
        return values
    finally:
        await stop_consumer(consumer)


async def test_records_come_back_in_order(broker: EmbeddedBroker) -> None:
    await _create(broker.bootstrap_servers, "broker-order")
    values = [f"value {number}".encode() for number in range(50)]
    await _produce(broker.bootstrap_servers, "broker-order", values)
    assert await _consume(broker.bootstrap_servers, "broker-order", 50) == values


async def test_a_record_of_8_mb_passes(broker: EmbeddedBroker) -> None:
    await _create(broker.bootstrap_servers, "broker-large")
    value = os.urandom(8 << 20)
    await _produce(broker.bootstrap_servers, "broker-large", [value])
    assert await _consume(broker.bootstrap_servers, "broker-large", 1) == [value]


async def test_a_transaction_and_compacted_topics_work(broker: EmbeddedBroker) -> None:
    await _create(broker.bootstrap_servers, "broker-tx", **{"cleanup.policy": "compact"})
    await _produce(broker.bootstrap_servers, "broker-tx", [b"a", b"b"], transaction="broker-test")
    assert await _consume(broker.bootstrap_servers, "broker-tx", 2) == [b"a", b"b"]


async def test_topics_are_not_made_by_a_typing_error(broker: EmbeddedBroker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=10_000)
    await producer.start()
    try:
        with pytest.raises(KafkaError):
            await producer.send_and_wait("broker-no-such-topic", b"x")
    finally:
        await producer.stop()


def test_port_in_use_is_one_line_that_names_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse) as refused:
            EmbeddedBroker(tmp_path, port).start()
    assert str(refused.value) == (
        f"embedded broker: port {port} on 127.0.0.1 is in use; stop what listens there or choose another port"
    )


async def test_a_second_owner_of_the_data_is_refused(
    broker: EmbeddedBroker, free_port: Callable[[], int], pytestconfig: pytest.Config
) -> None:
    second = EmbeddedBroker(broker.directory, free_port(), log=broker.directory / "second.log")
    with pytest.raises(DirectoryInUse) as refused:
        await asyncio.to_thread(second.start)
    # In a parallel run the process that hands files out started it.
    assert refused.value.pid == (os.getppid() if hasattr(pytestconfig, "workerinput") else os.getpid())
    second.kill()
    await _create(broker.bootstrap_servers, "broker-still-alive")


@pytest.fixture
def packaged_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java on the machine: the one that comes as a Python package must do."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.night
@pytest.mark.usefixtures("packaged_java")
async def test_data_survive_a_kill_on_the_packaged_java(tmp_path: Path, free_port: Callable[[], int]) -> None:
    lines: list[str] = []
    part = EmbeddedBroker(tmp_path, free_port(), progress=lines.append)
    try:
        part.start()
        assert lines[-1:] == ["formatting Kafka's storage"]
        await _create(part.bootstrap_servers, "kept")
        await _produce(part.bootstrap_servers, "kept", [b"before kill"])
        part.kill()
        assert not part.running

        # Another port, as a second demo on the same directory would have; nothing is formatted again.
        lines.clear()
        part = EmbeddedBroker(tmp_path, free_port(), progress=lines.append)
        part.start()
        assert lines == []
        assert await _consume(part.bootstrap_servers, "kept", 1) == [b"before kill"]
        stopping = time.monotonic()
        part.stop(120)
        assert time.monotonic() - stopping < 60, "it was killed"
        assert not part.running
    finally:
        part.kill()


@pytest.mark.night
def test_damaged_data_are_reported_with_the_log_and_advice(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=x\n")
    with pytest.raises(ProcessFailed) as refused:
        EmbeddedBroker(tmp_path, free_port()).start()
    assert "while starting" in str(refused.value)
    assert "move the broker directory away" in str(refused.value)
    assert "node" in refused.value.tail
