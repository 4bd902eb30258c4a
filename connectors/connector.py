"""The connector: subscriber, streams and publisher put together, run until told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from connectors.backlog import BacklogBudget
from connectors.descriptors import raise_limit, require
from connectors.discovery.file import SettingsFile
from connectors.discovery.follow import Follower
from connectors.health import HealthEndpoint
from connectors.held import HeldMessages
from connectors.listening import Peer
from connectors.position_ledger import Mention
from connectors.positions import Positions
from connectors.publisher import Publisher
from connectors.quiet import QUIET_SECONDS, QuietReports
from connectors.recovering import Recovering
from connectors.scrape import Scraper
from connectors.sequence import StoredPosition
from connectors.source import Source, SourceKey, SourceStream
from connectors.stopping import ended
from connectors.subscriber import TURN_BYTES, TURN_MESSAGES, Received, Subscriber
from connectors.telemetry import Telemetry
from schemas.events import EngineCounters, EventsRecord, SourceStatus
from schemas.settings import Settings

if TYPE_CHECKING:
    from connectors.receiver import Receiver

MIN_TICK_SECONDS = 0.005
"""Runs are looked at for their age this often at most."""
QUIET_CHECK_SECONDS = 1.0
"""Sources are looked at for silence this often."""
GC_THRESHOLD = 50_000
"""Allocations between collections: records are made of structs that hold no cycles."""
PAUSE_BYTES = 256 << 10
"""Received bytes that are decoded in one go: some milliseconds."""
POSITIONS_STOP_SECONDS = 1.0
"""A stop that ran out of time takes this much more for the positions of what it has published."""
STOP_SHARE = 0.25
"""Part of the drain budget for taking what the sockets hold; the rest is for Kafka's acknowledgements."""


async def run(
    settings: Settings,
    *,
    stop: asyncio.Event,
    partitions: int | None = None,
    file: SettingsFile | None = None,
) -> None:
    """Read the sources of the settings until `stop` is set, then publish what was received and return.

    The replicas of `file` are followed when it changes. Raises at the start ReplicaInvalid,
    BrokerUnreachable, TopicMissing, CertificateUnreadable, PositionsUnreadable, PositionsUnwritable,
    PortUnavailable, DescriptorsExhausted, later EndpointRefused; each says in one line what to do.
    """
    connector = Connector(settings, file)
    await connector.start(partitions)
    try:
        await connector.begin()
        await connector.run_until(stop)
    finally:
        await connector.stop()


class Connector:
    """The parts of one connector process; sources may come and go at any time between start and stop."""

    def __init__(self, settings: Settings, file: SettingsFile | None = None) -> None:
        self._settings = settings.connector
        # Scanned batches are MessagePack and can only be put into such records.
        self._may_scan = settings.kafka.record_format == "msgpack"
        self._scans = False
        self._warming: asyncio.Task[None] | None = None
        self.telemetry = Telemetry()
        self.streams: dict[SourceKey, SourceStream] = {}
        self._publisher = Publisher(settings, self.telemetry, self._note_acknowledged)
        self._positions = Positions(settings.kafka, self._publisher, self.telemetry)
        self._subscriber = Subscriber(
            hand_over_bytes=settings.connector.hand_over_bytes, refused=self.telemetry.endpoint_refused
        )
        self._backlog = BacklogBudget(settings.connector.backlog_bytes)
        self._recovering = Recovering(
            self.streams,
            timeout_seconds=settings.connector.replay_timeout_seconds,
            publish=self._publish,
            room=self._publisher.room,
        )
        self._scraper = Scraper(
            interval_seconds=settings.connector.scrape_seconds,
            timeout_seconds=settings.connector.scrape_timeout_seconds,
            deliver=self._note_counters,
            telemetry=self.telemetry,
        )
        self._health: HealthEndpoint | None = None
        if settings.connector.metrics_port:
            self._health = HealthEndpoint(
                settings.connector.metrics_host,
                settings.connector.metrics_port,
                self.telemetry.registry,
                lambda: self._publisher.keeps_up,
            )
        self._follower = Follower(settings, file, self, self.telemetry)
        self._held = HeldMessages()
        self._ending: dict[SourceKey, asyncio.Future[None]] = {}
        self._following: asyncio.Task[None] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._reporter: asyncio.Task[None] | None = None

    async def start(self, partitions: int | None = None) -> None:
        """Connect to Kafka and begin to receive; see `run` for what it raises."""
        raise_limit()
        # aiokafka logs every attempt on every connection; the publisher says it once, with the address.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, 20, 50)
        self.telemetry.watch(
            self.streams,
            {
                "kvlens_connector_unacknowledged_bytes": lambda: self._publisher.unacknowledged_bytes,
                "kvlens_connector_hand_over_bytes": lambda: self._subscriber.waiting_bytes,
                "kvlens_connector_backlog_bytes": lambda: self._backlog.used,
            },
            self.connected,
        )
        if self._health is not None:
            await self._health.start()
        try:
            await self._publisher.start(partitions)
            await self._positions.start()
        except BaseException:
            await self._publisher.stop()
            if self._health is not None:
                await self._health.stop()
            raise
        self._subscriber.start()
        self._pump = asyncio.create_task(self._pump_messages(), name="pump")
        self._ticker = asyncio.create_task(self._tick(), name="ticker")
        self._reporter = asyncio.create_task(self._report_quiet(), name="reporter")
        self._recovering.start()
        if self._may_scan:
            self._warming = asyncio.create_task(self._warm_up(), name="warm up")

    async def begin(self) -> None:
        """Read the first sources, listen for engines that connect, and follow what changes from now on."""
        await self._follower.begin()
        for listening in self._follower.listenings:
            self._subscriber.listen(listening, listening.endpoint)
        self._following = asyncio.create_task(self._follower.follow(), name="follower")

    @property
    def sources(self) -> dict[SourceKey, Source]:
        """The sources that are read."""
        return {key: stream.source for key, stream in self.streams.items()}

    async def add(self, sources: Sequence[Source]) -> None:
        """Begin to read sources, each where the log ends.

        Raises PositionsUnreadable, PositionsUnwritable and DescriptorsExhausted, and then adds none.
        """
        require(len(self.streams) + len(sources))
        positions = await self._positions.resume(sources)
        for source in sources:
            position = positions[source.key]
            self._add(
                source, StoredPosition(position.incarnation, position.seq, position.mark, position.closed)
            )

    def _add(self, source: Source, position: StoredPosition) -> None:
        self.streams[source.key] = SourceStream(
            source,
            self._settings,
            time.time,
            observe=self.telemetry.stream_event,
            resume=position,
            budget=self._backlog,
        )
        if self._follower.peer(source.key) is None:
            self._subscriber.add(source.key, source.endpoint, source.topic)
        if source.metrics_url is not None:
            self._scraper.add(source.replica, source.metrics_url)
        for received in self._held.take(source.key):
            self._feed(self.streams[source.key], received)

    async def remove(self, sources: Collection[SourceKey]) -> None:
        """Stop reading sources; returns when all that was received of them is in their closed streams."""
        ending = []
        for key in sources:
            if self._follower.peer(key) is None:
                self._ending[key] = asyncio.get_running_loop().create_future()
                ending.append(self._ending[key])
                self._subscriber.remove(key)
            else:
                self._end(key)
        await asyncio.gather(*ending)

    def _end(self, key: SourceKey) -> None:
        stream = self.streams.pop(key)
        self._publish(stream.close("removed"))
        self._positions.forget(key)
        if not any(replica == key[0] for replica, _ in self.streams):
            self._scraper.remove(key[0])
        if (ended := self._ending.pop(key, None)) is not None and not ended.done():
            ended.set_result(None)

    def readdress(self, source: Source) -> None:
        """Go on reading a source whose replay endpoint or metrics page has another address."""
        self.streams[source.key].readdress(source)
        if source.metrics_url is None:
            self._scraper.remove(source.replica)
        else:
            self._scraper.add(source.replica, source.metrics_url)

    def release_held(self, expected: Collection[SourceKey]) -> None:
        """Let go of messages of engines that connected but are not to be read after all."""
        for received in self._held.take_others(expected):
            self._subscriber.release(received.size)

    def connected(self, source: SourceKey) -> bool:
        """Tell whether the event stream of a source is connected, as of the last second."""
        return self._subscriber.connected(self._follower.peer(source) or source)

    def silent(self, source: SourceKey) -> bool:
        """Tell whether a source is neither connected nor was heard for `connector.silent_seconds`."""
        stream = self.streams.get(source)
        if stream is None or self.connected(source):
            return False
        return time.time() - stream.counts.last_received_at > self._settings.silent_seconds

    async def run_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`; raises what ended a part that should have run."""
        self.telemetry.started(len(self.streams), self._publisher.topic)
        stopped = asyncio.create_task(stop.wait())
        tasks = (
            self._pump,
            self._ticker,
            self._reporter,
            self._recovering.task,
            self._positions.task,
            self._following,
        )
        parts = [task for task in tasks if task is not None]
        try:
            done, _ = await asyncio.wait([stopped, *parts], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        for task in done:
            if task is not stopped:
                task.result()

    async def stop(self) -> None:
        """Publish what was received, within the drain budget, then let go of everything."""
        deadline = time.monotonic() + self._settings.drain_seconds
        await ended(self._following)
        await self._scraper.stop()
        await self._recovering.stop()
        self._subscriber.stop(self._settings.drain_seconds * STOP_SHARE)
        if self._pump is not None:
            # It ends by itself when the subscriber has handed over the last message.
            await asyncio.wait({self._pump}, timeout=max(0.0, deadline - time.monotonic()))
            self._pump.cancel()
            if left := self._subscriber.waiting_messages:
                self.telemetry.messages_abandoned(left)
        await ended(self._ticker, self._reporter)
        if self._warming is not None:
            self._warming.cancel()
        # The engines live on: whoever reads them next goes on where the log ends.
        for stream in self.streams.values():
            self._publish(stream.flush())
        abandoned = await self._publisher.drain(max(0.0, deadline - time.monotonic()))
        await self._positions.stop(max(POSITIONS_STOP_SECONDS, deadline - time.monotonic()))
        await self._publisher.stop()
        await self._subscriber.join(1.0)
        if self._health is not None:
            await self._health.stop()
        self.telemetry.stopped(abandoned)

    async def _pump_messages(self) -> None:
        """Feed what the subscriber hands over to the streams, and their records to the publisher."""
        since_pause = 0
        while (received := await self._subscriber.receive()) is not None:
            if isinstance(received.source, Peer):
                self._take_from_peer(received.source, received)
            elif received.last:
                self._end(received.source)
            else:
                self._feed(self.streams[received.source], received)
            since_pause += received.size
            if since_pause >= PAUSE_BYTES:
                # The producer and the timers have to run, too.
                since_pause = 0
                await asyncio.sleep(0)
            await self._publisher.room()

    def _take_from_peer(self, peer: Peer, received: Received) -> None:
        source = self._follower.source_of(peer, len(received.messages), received.received_at)
        if source is None:
            self._subscriber.release(received.size)
            return
        stream = self.streams.get(source.key)
        if stream is not None and stream.source.topic == source.topic:
            self._feed(stream, received)
        else:
            self._held.hold(source.key, received)

    def _feed(self, stream: SourceStream, received: Received) -> None:
        messages = received.messages if self._scans else list(received.messages)
        self._publish(stream.feed_all(messages, received.received_at))
        self._recovering.look(stream)
        self._subscriber.release(received.size)

    async def _warm_up(self) -> None:
        """Load what was compiled before, or compile it; until then the slow way is taken."""
        try:
            receiver = await asyncio.to_thread(_warm_receiver)
        except Exception as error:  # whatever the compiler finds wrong with this machine
            self.telemetry.compiled_code_unavailable(f"{type(error).__name__}: {error}")
            return
        self._scans = True
        if receiver is not None:
            self._subscriber.receive_with(receiver)

    async def _tick(self) -> None:
        """Publish the runs that are old enough."""
        pause = max(self._settings.linger_seconds / 4, MIN_TICK_SECONDS)
        while True:
            await asyncio.sleep(pause)
            now = time.time()
            for stream in self.streams.values():
                self._publish(stream.due(now))

    async def _report_quiet(self) -> None:
        """Publish of sources of which no batch comes whether they are connected."""
        reports = QuietReports()
        while True:
            await asyncio.sleep(QUIET_CHECK_SECONDS)
            if self._publisher.full or self._subscriber.behind:
                # A source may seem quiet because its batches wait for us. A replay that was asked for now
                # could begin behind these, and they would come late.
                continue
            now = time.time()
            for key, stream in self.streams.items():
                self._publish(stream.quiet(now, connected=self.connected(key)))
            # Nothing older comes of a source reported as connected, so what it misses has to come first.
            soon = now - QUIET_SECONDS + QUIET_CHECK_SECONDS
            heard = [
                (key, max(stream.counts.last_received_at, 0.0 if stream.settled else soon))
                for key, stream in self.streams.items()
            ]
            for key in reports.due(now, heard):
                stream = self.streams[key]
                reached = self.connected(key) or now - stream.answered_at < QUIET_SECONDS
                self._publish(stream.note(SourceStatus(reached), now))

    def _note_counters(self, replica: str, dp_rank: int, counters: EngineCounters) -> None:
        stream = self.streams.get((replica, dp_rank))
        if self._publisher.full:
            # The pump waits now, but scrapes would go on filling memory.
            self.telemetry.counters_skipped(replica)
        elif stream is not None:
            self._publish(stream.note(counters, time.time()))

    def _note_acknowledged(self, partition: int, offset: int, mentions: Sequence[Mention]) -> None:
        self._positions.acknowledged(partition, offset, mentions)

    def _publish(self, records: Iterable[EventsRecord]) -> None:
        for record in records:
            self._publisher.add(record)


def _warm_receiver() -> Receiver | None:
    """Warm up all that is compiled; return the receiver, None where pyzmq hides its libzmq."""
    from connectors import receiver, scanning  # here, because the import alone takes a second

    scanning.warm_up()
    try:
        receiver.warm_up()
        return receiver.Receiver(messages=TURN_MESSAGES, size=TURN_BYTES)
    except receiver.LibzmqHidden:
        return None
