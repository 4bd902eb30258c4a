"""The topic of LMCache's servers on a real broker, which gets more partitions while it is read."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from connectors.lmcache import topic_reader
from connectors.lmcache.servers import Servers
from connectors.lmcache.topic_reader import TopicReader
from connectors.publish.publisher import Publisher
from connectors.telemetry.events import Telemetry
from pipeline.doctor.asking import lmcache as asking
from pipeline.doctor.asking.lmcache import ask_reports
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Connector, Kafka, Lmcache, Settings
from tests.support.growing_topics import grow, make
from tests.support.patience import PATIENCE
from tests.support.report_log import ReportLog, report


class Log(ReportLog):
    """Acknowledges at once, so nothing is ever waited for."""

    def mark(self) -> list[int]:
        return []

    def passed(self, mark: list[int]) -> bool:
        return True


class Told(Telemetry):
    def __init__(self) -> None:
        super().__init__()
        self.grew: list[tuple[str, int, int]] = []

    def report_partitions_added(self, topic: str, before: int, now: int) -> None:
        super().report_partitions_added(topic, before, now)
        self.grew.append((topic, before, now))


async def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def write(address: str, topic: str, partition: int, server: str, numbers: range) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in numbers:
            await producer.send(topic, report(number, server), partition=partition)
        await producer.flush()


@pytest.fixture
async def settings(broker: EmbeddedBroker) -> Settings:
    topic = f"reports_{secrets.token_hex(4)}"
    await make(broker.bootstrap_servers, topic, 1)
    return Settings(
        kafka=Kafka(bootstrap_servers=broker.bootstrap_servers),
        connector=Connector(linger_seconds=60.0),
        lmcache=Lmcache(models="m", topic=topic, group=topic),
    )


async def test_partitions_that_come_later_are_read_from_their_beginning_and_nothing_twice(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(asking, "LATE_SECONDS", -3600.0)  # so that all there is counts as late
    address, topic = settings.kafka.bootstrap_servers, settings.lmcache.topic
    log, told = Log(), Told()
    servers = Servers(settings, cast(Publisher, log), cast(Any, log), told, lambda name: False)
    reader = TopicReader(
        settings.kafka,
        topic=topic,
        group=settings.lmcache.group,
        servers=servers,
        publisher=cast(Publisher, log),
        telemetry=told,
    )

    def numbers(server: str) -> list[int]:
        servers.flush()
        return log.numbers(f"{server}@m")

    reader.start()
    try:
        await write(address, topic, 0, "a", range(1, 4))
        await until(lambda: numbers("a") == [0, 1, 2])
        for partitions in (2, 4):
            new = partitions - 1
            await grow(address, topic, partitions)
            await write(address, topic, new, f"s{new}", range(1, 6))
            await write(address, topic, 0, "a", range(2 * partitions, 2 * partitions + 2))
            await until(lambda server=f"s{new}": numbers(server) == [0, 1, 2, 3, 4])  # type: ignore[misc]
        await until(lambda: numbers("a") == [0, 1, 2, 3, 4, 7, 8])
        assert told.grew == [(topic, 1, 2), (topic, 2, 4)]
        await until(lambda: reader.unread == 0)
        deadline = time.monotonic() + PATIENCE
        while True:  # until all of it is committed
            found = await ask_reports(settings, time.time(), 20.0)
            assert found is not None
            assert time.monotonic() < deadline
            if not any(found.late.values()):
                break
    finally:
        await reader.stop()
    await write(address, topic, 2, "late", range(1, 8))
    found = await ask_reports(settings, time.time(), 20.0)
    assert found is not None
    assert found.late == {0: 0, 1: 0, 2: 7, 3: 0}


@pytest.mark.night
async def test_a_topic_that_is_gone_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reader, "LOOK_SECONDS", 0.1)
    reasons: list[str] = []
    monkeypatch.setattr(Telemetry, "reports_unreachable", lambda self, topic, reason: reasons.append(reason))
    log = Log()
    servers = Servers(settings, cast(Publisher, log), cast(Any, log), Telemetry(), lambda name: False)
    reader = TopicReader(
        settings.kafka,
        topic=settings.lmcache.topic,
        group=settings.lmcache.group,
        servers=servers,
        publisher=cast(Publisher, log),
        telemetry=Telemetry(),
    )
    reader.start()
    try:
        await until(lambda: servers.reached)
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka.bootstrap_servers)
        await admin.start()
        await admin.delete_topics([settings.lmcache.topic])
        await admin.close()
        await until(lambda: any("does not exist" in reason for reason in reasons))
        assert not servers.reached
    finally:
        await reader.stop()
