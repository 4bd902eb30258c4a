"""The connector process: reading, positions, publisher and pages, run until asked to stop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import cast

from connectors.discovery.file import SettingsFile
from connectors.kafka.zstd import keep_zstd_contexts
from connectors.lmcache.door import Door
from connectors.lmcache.servers import Servers
from connectors.lmcache.topic_reader import TopicReader
from connectors.order.records import Mention
from connectors.order.sequence import StoredPosition
from connectors.positions.keeper import Positions
from connectors.process.collector import GC_THRESHOLDS
from connectors.process.health_pages import HealthPages
from connectors.process.stopping import Stop, done_before, ended_within
from connectors.process.waiting import Waiting
from connectors.publish.publisher import Publisher
from connectors.reading import Reading
from connectors.receive.descriptors import raise_limit
from connectors.sources import SourceKey
from connectors.telemetry.events import Telemetry
from connectors.telemetry.streams import Counted
from schemas import metrics
from schemas.settings import Settings, shard_numbers

POSITIONS_STOP_SECONDS = 0.6
"""Extra time of a stop that has run out of it, for writing the positions of what was published."""
CLOSING_SECONDS = 0.3
"""Extra time for closing connections: what was not written by then is given up."""


async def run(settings: Settings, *, stop: Stop, file: SettingsFile | None = None) -> None:
    """Read the sources of the settings until `stop` is set, then publish what was received and return.

    Waits for a broker, topics and rights that do not exist yet, and follows the replicas of `file`.
    Raises ReplicaInvalid, LoginRefused, CertificateUnreadable, PortUnavailable, DescriptorsExhausted and
    KeyUnusable at the start, EndpointRefused later; each says in one line what to do.
    """
    keep_zstd_contexts()
    connector = Connector(settings, file)
    try:
        if await done_before(stop, asyncio.create_task(connector.start())):
            await connector.run_until(stop)
    finally:
        await connector.stop(stop.within)


class Connector:
    """The parts of one connector process."""

    def __init__(self, settings: Settings, file: SettingsFile | None = None) -> None:
        self._settings = settings.connector
        self._telemetry = Telemetry()
        self._publisher = Publisher(settings, self._telemetry, self._note_acknowledged)
        self._positions = Positions(settings.kafka, self._publisher, self._telemetry, self._note_overtaken)
        self._reading = Reading(settings, file, self._publisher, self._positions, self._telemetry)
        self._servers, self._topic_reader, self._door = self._lmcache(settings)
        self._receives = False
        self._waiting = Waiting(self._telemetry.waiting)
        self._pages = HealthPages(
            settings.connector.metrics_host,
            settings.connector.metrics_port,
            setting="connector.metrics_port",
            registry=self._telemetry.registry,
            unready=self._unready,
        )

    def _lmcache(self, settings: Settings) -> tuple[Servers, TopicReader | None, Door | None]:
        """Return what receives LMCache's reports; only shard 0 has a topic reader and a door."""
        servers = Servers(
            settings,
            self._publisher,
            self._positions,
            self._telemetry,
            taken=lambda replica: any(replica == of for of, _ in self._reading.streams),
        )
        lmcache = settings.lmcache
        if shard_numbers(settings.connector.shard)[0]:
            return servers, None, None
        section, login = settings.lmcache_login
        reader = TopicReader(
            login,
            section=section,
            topic=lmcache.topic,
            group=lmcache.group,
            servers=servers,
            publisher=self._publisher,
            telemetry=self._telemetry,
        )
        door = Door(lmcache, servers, self._telemetry, most_bytes=settings.connector.max_frame_bytes)
        return servers, reader if lmcache.topic else None, door if lmcache.port else None

    async def start(self) -> None:
        """Connect to Kafka and begin to read the sources; see `run` for what it raises."""
        raise_limit()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        reading = self._reading
        servers = self._servers
        self._telemetry.watch(
            ChainMap(
                cast(dict[SourceKey, Counted], reading.streams),
                cast(dict[SourceKey, Counted], servers.streams),
            ),
            {
                metrics.Connector.unacknowledged_bytes: lambda: self._publisher.unacknowledged_bytes,
                metrics.Connector.hand_over_bytes: lambda: reading.subscriber.hand_over.waiting_bytes,
                metrics.Connector.backlog_bytes: lambda: reading.backlog.used,
                metrics.Connector.unknown_partitions: lambda: self._publisher.unknown_partitions,
                metrics.Connector.unread_reports: self._unread_reports,
            },
            lambda source: (servers if source in servers.streams else reading).connected(source),
        )
        await self._pages.start()
        await self._waiting.until(self._publisher.start)
        await self._waiting.until(self._positions.start)
        self._receives = True
        reading.start()
        await self._waiting.until(reading.begin)
        if self._topic_reader is not None or self._door is not None:
            servers.start()
        if self._topic_reader is not None:
            self._topic_reader.start()
        if self._door is not None:
            await self._door.start()

    async def run_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`; raise the error of a part that ends before it."""
        self._telemetry.started(len(self._reading.streams), self._publisher.topic)
        stopped = asyncio.create_task(stop.wait())
        running = [*self._reading.tasks, *self._servers.tasks, *self._publisher.tasks]
        others = (self._positions.task, None if self._topic_reader is None else self._topic_reader.task)
        running += [task for task in others if task is not None]
        try:
            done, _ = await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        for task in done:
            if task is not stopped:
                task.result()

    async def stop(self, within: Callable[[float], float]) -> None:
        """Publish what was received, within the drain budget, then release everything.

        `within` returns, for the time that the settings allow, how long a stop may take now.
        """
        closing = POSITIONS_STOP_SECONDS + CLOSING_SECONDS
        deadline = time.monotonic() + max(0.0, within(self._settings.drain_seconds + closing) - closing)
        # In parallel, so that slow requests do not use up the time that Kafka needs.
        await asyncio.gather(self._stop_reports(), self._stop_reading(deadline))
        abandoned = await self._publisher.drain(max(0.0, deadline - time.monotonic()))
        await self._positions.write(max(POSITIONS_STOP_SECONDS, deadline - time.monotonic()))
        await asyncio.gather(
            self._positions.stop(CLOSING_SECONDS),
            self._publisher.stop(CLOSING_SECONDS),
            ended_within(CLOSING_SECONDS, self._pages.stop()),
            *([self._reading.subscriber.join(CLOSING_SECONDS)] if self._receives else []),
        )
        self._telemetry.stopped(abandoned)

    async def _stop_reports(self) -> None:
        if self._door is not None:
            await self._door.stop()
        if self._topic_reader is not None:
            await self._topic_reader.stop()
        await self._servers.stop()

    async def _stop_reading(self, deadline: float) -> None:
        if self._receives:
            await self._reading.stop(deadline)

    def _unready(self) -> str | None:
        if self._waiting.cause is not None:
            return self._waiting.cause
        return None if self._publisher.keeps_up else "Kafka does not keep up or cannot be reached"

    def _unread_reports(self) -> float:
        return 0 if self._topic_reader is None else self._topic_reader.unread

    def _note_overtaken(self, source: SourceKey, by: StoredPosition) -> None:
        self._reading.overtaken(source, by)

    def _note_acknowledged(self, partition: int, offset: int, mentions: Sequence[Mention]) -> None:
        self._positions.acknowledged(partition, offset, mentions)
