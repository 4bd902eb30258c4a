"""What the publisher does without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import MessageSizeTooLargeError, UnknownTopicOrPartitionError

from connectors.order.records import Mention
from connectors.process.backoff import Backoff
from connectors.process.tls_files import CertificateUnreadable
from connectors.publish import publisher as publisher_module
from connectors.publish.publisher import Publisher
from schemas.events import Stored
from schemas.settings import Kafka, Settings
from tests.support.inputs.event_records import batch, record


class Told:
    def __init__(self) -> None:
        self.unreachable: list[str] = []

    def broker_unreachable(self, bootstrap_servers: str, reason: str) -> None:
        self.unreachable.append(reason)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def test_a_certificate_that_cannot_be_read_refuses_a_start_but_ends_nothing_later(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "ca.pem")
    told = Told()
    publisher = Publisher(Settings(kafka=Kafka(security_protocol="SSL", ssl_cafile=missing)), told)
    with pytest.raises(CertificateUnreadable, match=missing):
        await publisher.start()
    # A producer broke down while the file is being replaced: the next try reads it again.
    await publisher._replace(None)
    assert len(told.unreachable) == 1
    assert missing in told.unreachable[0]


class Batch:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, value: bytes, **_: Any) -> object:
        self.values.append(value)
        return self

    def close(self) -> None: ...


class Producer:
    """Its broker takes batches of so many bytes, and has so many partitions."""

    def __init__(self, most_bytes: int, partitions: int = 1) -> None:
        self.most_bytes, self.partitions = most_bytes, partitions
        self.taken: list[bytes] = []
        self.batches: list[int] = []
        """How many records each had that was taken."""

    def create_batch(self) -> Batch:
        return Batch()

    async def stop(self) -> None: ...

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
        assert partition < self.partitions, "Unrecognized partition"
        acknowledged: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if sum(map(len, batch.values)) > self.most_bytes:
            acknowledged.set_exception(MessageSizeTooLargeError())
        else:
            acknowledged.set_result(SimpleNamespace(offset=len(self.taken)))
            self.taken += batch.values
            self.batches.append(len(batch.values))
        return acknowledged


class Heard:
    """What the publisher tells, and what is acknowledged or given up."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.failed = asyncio.Event()
        self.abandoned = 0
        self.settled: list[tuple[int, int | None]] = []

    def publish_failed(self, partition: int, reason: str) -> None:
        self.failures.append(reason)
        self.failed.set()

    def records_abandoned(self, records: int) -> None:
        self.abandoned += records

    def published(self, records: int, size: int) -> None: ...

    def acknowledged(self, partition: int, offset: int, mentions: Sequence[Mention]) -> None:
        self.settled += [(offset, mention.seq) for mention in mentions]


async def publishing(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> tuple[Publisher, Heard]:
    """Return a publisher that sends what it is given, to a partition 0, with this producer alone."""
    heard = Heard()
    publisher = Publisher(Settings(), cast(Any, heard), heard.acknowledged)
    monkeypatch.setattr(publisher_module, "RETRY", Backoff(first=0.0, longest=0.0))
    monkeypatch.setattr(publisher, "_replace", lambda broken: asyncio.sleep(0))
    publisher._producer = cast(Any, producer)
    lane = publisher_module._Lane(0)
    publisher._lanes = [lane]
    lane.task = asyncio.create_task(publisher._run(lane))
    return publisher, heard


async def test_what_the_broker_never_takes_holds_nothing_else_up(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(most_bytes=2_000)
    publisher, heard = await publishing(monkeypatch, producer)
    for seq in range(8):
        text = "x" * (3_000 if seq == 5 else 300)
        event = Stored(b"12345678", 16, 16, medium=text)
        publisher.add(record(batch(seq, 0.0, event)))
    assert await publisher.drain(60.0) == 0
    await publisher.stop()
    assert len(producer.taken) == 7
    assert heard.abandoned == 1
    assert [seq for _, seq in heard.settled] == [*range(8)], "nor is it asked for again"
    assert all("max.message.bytes" in reason for reason in heard.failures)
    assert len(heard.failures) <= 4
    assert publisher.unacknowledged_bytes == 0


async def test_after_a_record_that_is_too_large_others_are_sent_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Producer(most_bytes=2_000)
    publisher, heard = await publishing(monkeypatch, producer)
    for seq in range(5):
        event = Stored(b"12345678", 16, 16, medium="x" * (300 if seq else 3_000))
        publisher.add(record(batch(seq, 0.0, event)))
    assert await publisher.drain(60.0) == 0
    await publisher.stop()
    assert heard.abandoned == 1
    assert producer.batches == [4], "it is its bytes that the broker does not take, not their number"


async def test_a_partition_that_is_gone_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, heard = await publishing(monkeypatch, Producer(most_bytes=2_000, partitions=0))
    publisher.add(record(batch(0, 0.0)))
    await heard.failed.wait()
    assert not publisher.tasks[0].done()
    assert "no partition 0" in heard.failures[0]
    with pytest.raises(UnknownTopicOrPartitionError):
        await publisher.write("positions", 0, [(b"key", b"value")])
    await publisher.stop()


async def test_a_producer_that_breaks_down_is_stopped_when_nothing_of_others_is_in_flight_in_it() -> None:
    in_flight = asyncio.Event()
    stopped: list[object] = []

    class Broken:
        async def stop(self) -> None:
            await in_flight.wait()
            stopped.append(self)

    told = Told()
    publisher = Publisher(Settings(kafka=Kafka(bootstrap_servers="127.0.0.1:9")), told)
    broken: Any = Broken()
    publisher._producer = broken
    await publisher._replace(broken)
    assert len(told.unreachable) == 1
    in_flight.set()
    await asyncio.sleep(0.01)
    assert stopped == [broken]
