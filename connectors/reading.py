"""From the engines to the publisher: adds and removes sources, and connects the parts that read them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from connectors.dealing import Dealing
from connectors.discovery.file import SettingsFile
from connectors.discovery.follow import Follower
from connectors.order.backlog import BacklogBudget
from connectors.order.gathered import Gathered, Slot
from connectors.order.idle import IDLE_SECONDS, IdleReports
from connectors.order.log import Hearers
from connectors.order.open_runs import OpenRuns, tick_seconds
from connectors.order.sequence import StoredPosition
from connectors.order.stream import SourceStream
from connectors.positions.keeper import Positions
from connectors.process.leaving import aside
from connectors.process.stopping import ended
from connectors.publish.publisher import Publisher
from connectors.receive.descriptors import require
from connectors.receive.pump import Pump
from connectors.receive.received import Key
from connectors.receive.subscriber import Subscriber
from connectors.receive.warming import warm_up, warm_up_scanner
from connectors.replay.requests import ReplayRequests
from connectors.scrape.scraper import Scraper
from connectors.sources import Source, SourceKey
from connectors.telemetry.events import Telemetry
from schemas.events import EngineCounters, EventsRecord, SourceStatus
from schemas.positions import PositionRecord
from schemas.reasons import ClosedReason
from schemas.settings import Connector, Settings

REST_SHARE = 1 / 5
"""Share of the linger for which messages may first wait in their sockets, so that many are read at once."""
LOOK_SECONDS = 1.0
"""How often sources are checked for missing batches and for silence."""
STOP_SHARE = 0.25
"""Share of the drain budget for reading what the sockets hold; the rest is for Kafka's acknowledgements."""


def _subscriber(settings: Connector, telemetry: Telemetry) -> Subscriber:
    return Subscriber(
        hand_over_bytes=settings.hand_over_bytes,
        rest_seconds=settings.linger_seconds * REST_SHARE,
        # Without a linger every message is a record, and nothing could be gathered.
        together=settings.linger_seconds > 0,
        refused=telemetry.endpoint_refused,
    )


class Reading:
    """Reads the sources that discovery wants, from `begin` to `stop`, and publishes their records.

    Messages go from the subscriber's thread through pump and dealing to the streams, and what these make of
    them to the publisher. The follower adds and removes sources. Replay requests fetch what streams miss, the
    scraper brings engines' counters, the ticker closes runs in time, and the reporter has streams check what
    they lack and says which idle sources are connected.
    """

    def __init__(
        self,
        settings: Settings,
        file: SettingsFile | None,
        publisher: Publisher,
        positions: Positions,
        telemetry: Telemetry,
    ) -> None:
        """Raises KeyUnusable."""
        self._settings = settings.connector
        # Scanned batches are MessagePack and can only be put into such records.
        self._scans_bundles = settings.kafka.record_format == "msgpack"
        self._warming: asyncio.Task[None] | None = None
        self._publisher = publisher
        self._positions = positions
        self._telemetry = telemetry
        self.streams: dict[SourceKey, SourceStream] = {}
        self.subscriber = _subscriber(self._settings, telemetry)
        self._open_runs = OpenRuns()
        self._gathered = Gathered()
        self._slots: dict[SourceKey, Slot] = {}
        self.backlog = BacklogBudget(self._settings.backlog_bytes)
        self._replay_requests = ReplayRequests(
            self.streams,
            timeout_seconds=self._settings.replay_timeout_seconds,
            publish=self._publish,
            room=publisher.room,
            charge=self._charge_replay,
        )
        self._scraper = Scraper(
            interval_seconds=self._settings.scrape_seconds, deliver=self._note_counters, telemetry=telemetry
        )
        self._follower = Follower(settings, file, self, telemetry)
        self._dealing = Dealing(
            self._settings,
            self.streams,
            self._gathered,
            self.subscriber.hand_over,
            self._follower,
            self._replay_requests,
            self._publish,
            self._ended,
        )
        self._pump = Pump(
            self.subscriber,
            deal=self._dealing.deal,
            gather=self._dealing.gather,
            room=publisher.room,
            paused=self._note_paused,
        )
        self._ending: dict[SourceKey, tuple[asyncio.Future[None], ClosedReason]] = {}
        self._following: asyncio.Task[None] | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._reporter: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to receive; publisher and positions must have started."""
        self.subscriber.start()
        self._pumping = asyncio.create_task(self._pump.run(), name="pump")
        self._ticker = asyncio.create_task(self._tick(), name="ticker")
        self._reporter = asyncio.create_task(self._report_idle(), name="reporter")
        self._replay_requests.start()
        self._scraper.start()
        self._warming = asyncio.create_task(self._warm_up(), name="warm up")

    async def begin(self) -> None:
        """Read the first sources, listen for engines that connect, and follow what changes from now on.

        Raises ReplicaInvalid and SourcesNotAdded.
        """
        await self._follower.begin()
        for listening in self._follower.listenings:
            self.subscriber.listen(listening)
        self._following = asyncio.create_task(self._follower.follow(), name="follower")

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that run until the stop; one that ends earlier has failed."""
        asking = (self._replay_requests.task, self._scraper.task)
        tasks = (self._pumping, self._ticker, self._reporter, *asking, self._following)
        return [task for task in tasks if task is not None]

    async def stop(self, deadline: float) -> None:
        """Read what the sockets hold and hand all of it to the publisher, until `deadline` (monotonic)."""
        await ended(self._following)
        await self._scraper.stop()
        await self._replay_requests.stop()
        self.subscriber.stop(max(0.0, deadline - time.monotonic()) * STOP_SHARE)
        if self._pumping is not None:
            # It ends by itself when the subscriber has handed over the last message.
            await asyncio.wait({self._pumping}, timeout=max(0.0, deadline - time.monotonic()))
            await ended(self._pumping)
            if left := self._pump.waiting_messages:
                self._telemetry.messages_abandoned(left)
        await ended(self._ticker, self._reporter, self._warming)
        # Sessions are not closed: the engines live on, and the next connector continues where the log ends.
        for stream in self.streams.values():
            self._publish(stream.flush())

    @property
    def sources(self) -> dict[SourceKey, Source]:
        """The sources that are read."""
        return {key: stream.source for key, stream in self.streams.items()}

    async def add(self, sources: Sequence[Source]) -> None:
        """Begin to read sources, each where the log ends.

        Raises SourcesNotAdded, in which case it adds none.
        """
        require(len(self.streams) + len(sources))
        positions = await self._positions.resume(sources)
        for source in sources:
            self._add(source, positions[source.key])

    def _add(self, source: Source, position: PositionRecord) -> None:
        slot = self._slots[source.key] = self._gathered.add(source.key)
        self.streams[source.key] = SourceStream(
            source,
            self._settings,
            time.time,
            Hearers(self._telemetry.stream_event, partial(self._open_runs.opened, source.key)),
            resume=StoredPosition.of(position),
            budget=self.backlog,
            slot=slot,
            forwarding=self._dealing.forwarding,
        )
        if source.session_name and position.life not in ("", source.session_name):
            # The position is of an earlier session of the engine.
            self._publish(self.streams[source.key].close("restarted"))
        if self._follower.peer(source.key) is None:
            self.subscriber.add(
                source.key, source.endpoint, source.topic, shared_sequence=source.shared_sequence
            )
        if source.metrics_url is not None:
            self._scraper.add(source.replica, source.metrics_url)
        self._dealing.begun(self.streams[source.key])

    async def remove(self, sources: Collection[SourceKey], reason: ClosedReason) -> None:
        """Stop reading sources; return when their streams have all that was received, and are closed."""
        ending = []
        for key in sources:
            if self._follower.peer(key) is None:
                done = asyncio.get_running_loop().create_future()
                self._ending[key] = (done, reason)
                ending.append(done)
                self.subscriber.remove(key)
            else:
                self._end(key, reason)
        await asyncio.gather(*ending)

    def _end(self, key: SourceKey, reason: ClosedReason) -> None:
        stream = self.streams.pop(key)
        self._publish(stream.close(reason))
        self._gathered.remove(self._slots.pop(key))
        self._positions.forget(key)
        if not any(replica == key[0] for replica, _ in self.streams):
            self._scraper.remove(key[0])

    def _ended(self, key: SourceKey) -> None:
        """End a source whose last message the subscriber has handed over."""
        done, reason = self._ending.pop(key)
        self._end(key, reason)
        if not done.done():
            done.set_result(None)

    def readdress(self, source: Source) -> None:
        """Continue reading a source whose replay endpoint, metrics page or role has changed."""
        self.streams[source.key].readdress(source)
        if source.metrics_url is None:
            self._scraper.remove(source.replica)
        else:
            self._scraper.add(source.replica, source.metrics_url)

    def overtaken(self, source: SourceKey, by: StoredPosition) -> None:
        """Continue with the later incarnation that another connector has published."""
        if (stream := self.streams.get(source)) is not None:
            self._publish(stream.overtaken(by))

    def release_pending(self, expected: Collection[SourceKey]) -> None:
        """Release the messages of engines that connected but will not be read after all."""
        self._dealing.release_pending(expected)

    def connected(self, source: SourceKey) -> bool:
        """Return whether the event stream of a source is connected, as of the last second."""
        return self.subscriber.connected(self._follower.peer(source) or source)

    def silent(self, source: SourceKey) -> bool:
        """Return whether a source is not connected and sent nothing for `connector.silent_seconds`."""
        stream = self.streams.get(source)
        if stream is None or self.connected(source):
            return False
        return time.time() - stream.heard_at > self._settings.silent_seconds

    async def _warm_up(self) -> None:
        """Load the compiled code, or compile it; until then messages are decoded the slow way."""
        try:
            receiver = await aside(warm_up if self._scans_bundles else warm_up_scanner)
        except Exception as error:  # whatever the compiler finds wrong with this machine
            self._telemetry.compiled_code_unavailable(f"{type(error).__name__}: {error}")
            return
        self._dealing.scans = self._scans_bundles
        if receiver is not None:
            self.subscriber.receive_with(receiver)

    async def _tick(self) -> None:
        """Publish the runs that are old enough."""
        pause = tick_seconds(self._settings.linger_seconds)
        while True:
            await asyncio.sleep(pause)
            now = time.time()
            for source in self._gathered.due(now, self._settings.linger_seconds):
                self._publish(self.streams[source].due(now))
            self._publish(self._open_runs.closed(self.streams, now))

    async def _report_idle(self) -> None:
        """Publish, for each idle source, whether it is connected."""
        reports = IdleReports()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._publisher.full or self.subscriber.behind:
                # A source may seem idle because its batches wait for us. A replay requested now could begin
                # behind them, and they would then come too late.
                continue
            now = time.time()
            # Sources whose messages wait for their turn may seem idle as well.
            streams = {key: stream for key, stream in self.streams.items() if not self._behind(key)}
            for key, stream in streams.items():
                self._publish(stream.look(now, connected=self.connected(key)))
            # Once a source is reported as connected nothing older may follow: missing batches come first.
            soon = now - IDLE_SECONDS + LOOK_SECONDS
            heard = [
                (key, max(stream.counts.last_received_at, 0.0 if stream.settled else soon))
                for key, stream in streams.items()
            ]
            for key in reports.due(now, heard):
                stream = streams[key]
                reached = self.connected(key) or now - stream.answered_at < IDLE_SECONDS
                self._publish(stream.note(SourceStatus(reached), now))

    def _behind(self, source: SourceKey) -> bool:
        return self._pump.behind(self._follower.peer(source) or source)

    def _charge_replay(self, source: SourceKey, seconds: float) -> None:
        self._pump.charge(self._follower.peer(source) or source, seconds)

    def _note_paused(self, received_from: Key) -> None:
        for source, stream in self.streams.items():
            if (self._follower.peer(source) or source) == received_from:
                stream.counts.pauses += 1
                self._telemetry.source_paused(*source)

    def _note_counters(self, replica: str, dp_rank: int, counters: EngineCounters) -> None:
        stream = self.streams.get((replica, dp_rank))
        if self._publisher.full:
            # The pump waits now, but scrapes would keep filling memory.
            self._telemetry.counters_skipped(replica)
        elif stream is not None:
            self._publish(stream.note(counters, time.time()))

    def _publish(self, records: Iterable[EventsRecord]) -> None:
        for record in records:
            self._publisher.add(record)
