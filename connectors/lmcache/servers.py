"""From reports of LMCache's servers to the publisher: a source begins with the first report about it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from connectors.lmcache.backlog import ALL
from connectors.lmcache.decoder import Place, ReportDecoder, Reported
from connectors.lmcache.liveness import Liveness, made_up
from connectors.lmcache.names import replica_id, source_at
from connectors.lmcache.streams import MemoryStream, ReportStream, StorageStream
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.order.idle import IdleReports
from connectors.order.log import Hearers
from connectors.order.open_runs import OpenRuns, tick_seconds
from connectors.positions.keeper import Positions
from connectors.process.stopping import ended
from connectors.publish.publisher import Publisher
from connectors.sources import Source, SourceKey, SourcesNotAdded
from schemas.events import Event, EventsRecord, SourceStatus
from schemas.positions import PositionRecord
from schemas.reasons import ClosedReason, ReportRefusal
from schemas.settings import Settings

LOOK_SECONDS = 1.0
"""How often sources are checked for silence."""
RETRY_SECONDS = 2.0
MAX_SOURCES = 2000
"""Most sources that reports may create: each server's memory, and each storage, for each model."""

Report = tuple[bytes, float]
"""The payload, and when its server was there."""
Value = TypeVar("Value")


class ServersTelemetry(Protocol):
    """Where the servers' reports are counted."""

    def stream_event(self, source: Source, event: Event) -> None: ...
    def reports_refused(self, refused: Mapping[ReportRefusal, int]) -> None: ...
    def sources_not_added(self, reason: str) -> None: ...
    def absence_doubted(self, origin: str, known: int, found: int) -> None: ...


class Servers:
    """The sources of all servers that report to this connector."""

    def __init__(
        self,
        settings: Settings,
        publisher: Publisher,
        positions: Positions,
        telemetry: ServersTelemetry,
        taken: Callable[[str], bool],
    ) -> None:
        """`taken` returns whether an engine's replica has an id. Raises KeyUnusable."""
        self._settings = settings
        self._publisher = publisher
        self._positions = positions
        self._telemetry = telemetry
        self._taken = taken
        key_file = settings.lmcache.salt_key_file
        salts = Pseudonyms.of_file(key_file, "lmcache.salt_key_file") if key_file else None
        retains = settings.lmcache.l2_prefetch_policy == "retain"
        self._decoder = ReportDecoder(settings.lmcache.model_names, salts, retains=retains)
        self.streams: dict[SourceKey, ReportStream] = {}
        self._at: dict[Place, ReportStream] = {}
        self._places: dict[SourceKey, Place] = {}
        self._storage: dict[str, list[StorageStream]] = {}
        """By server, the streams of storage that it has written to."""
        self._open_runs = OpenRuns()
        self._taking = asyncio.Lock()
        self._liveness = Liveness(
            settings.lmcache.silent_seconds, partial(telemetry.absence_doubted, "lmcache")
        )
        self.reached = not settings.lmcache.topic
        """Whether the topic can be read, if there is one. Over HTTP reports always come."""
        self.read_to = ALL
        """Everything that the topic got before this time has been read."""
        self._ticker: asyncio.Task[None] | None = None
        self._looker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to close runs in time and end silent servers; publisher and positions must have started."""
        self._ticker = asyncio.create_task(self._tick(), name="lmcache ticker")
        self._looker = asyncio.create_task(self._look(), name="lmcache looker")

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that run until the stop; one that ends earlier has failed."""
        return [task for task in (self._ticker, self._looker) if task is not None]

    async def stop(self) -> None:
        """Hand everything to the publisher."""
        await ended(self._ticker, self._looker)
        self.flush()

    def connected(self, source: SourceKey) -> bool:
        """Return whether something new about a source would be heard."""
        stream = self.streams.get(source)
        if stream is None or not self._may_report(place := self._places[source]):
            return False
        servers = stream.servers if isinstance(stream, StorageStream) else (place.instance,)
        return self.reached or all(map(self._liveness.posts, servers))

    def register(self, server: str) -> bool | None:
        """Register a server for heartbeats; return whether it was before, None if there is no room."""
        before = self._liveness.beats(server)
        if not before and len(self._liveness) >= MAX_SOURCES:
            return None
        self._liveness.beat(server, time.time())
        return before

    def beat(self, server: str) -> bool:
        """Note a heartbeat; return whether its server is registered: if not, it has to register first."""
        if not self._liveness.beats(server):
            return False
        self._liveness.beat(server, time.time())
        return True

    def leaves(self, server: str) -> None:
        """Note that a server says it leaves."""
        self._liveness.leaves(server, time.time())

    async def take(
        self,
        reports: Iterable[Report],
        received_at: float,
        *,
        posted: bool = False,
        seconds: float | None = None,
    ) -> Counter[ReportRefusal]:
        """Take Kafka records or, if `posted`, bodies of requests, in order; return what was left out and why.

        Waits for room at the publisher, at most for `seconds`: asyncio.TimeoutError says that nothing was
        taken. Then waits for the positions of sources that are new, however long that takes: what has been
        decoded cannot be decoded again, as the decoder goes on with every batch.
        """
        await asyncio.wait_for(self._turn(), seconds)
        try:
            found: list[Reported] = []
            refused: Counter[ReportRefusal] = Counter()
            for payload, heard_at in reports:
                if len(payload) > self._settings.connector.max_frame_bytes:
                    refused["too_large"] += 1
                    continue
                reported, left_out = self._decoder.decode(payload)
                found += reported
                refused += left_out
                for batch in reported:
                    self._liveness.reported(batch.instance, batch.incarnation, heard_at, posted=posted)
            refused += await self._meet(found)
            for batch in found:
                self._feed(batch, received_at)
            if refused:
                self._telemetry.reports_refused(refused)
            return refused
        finally:
            self._taking.release()

    async def _turn(self) -> None:
        """Wait until nobody else takes reports and there is room for what follows from them."""
        await self._taking.acquire()
        try:
            await self._publisher.room()
        except BaseException:
            self._taking.release()
            raise

    def flush(self) -> None:
        """Hand the open runs to the publisher."""
        for stream in self.streams.values():
            self._publish(stream.flush())

    def _feed(self, batch: Reported, received_at: float) -> None:
        """Feed a batch to its server's memory and storage it has written to: they need all its numbers."""
        began = time.thread_time()
        fed: list[ReportStream] = []
        for model in self._decoder.models:
            memory = self._at.get(Place(batch.instance, "", model))
            if memory is not None:
                fed.append(memory)
        for place in batch.parts:
            storage = self._at.get(place)
            if isinstance(storage, StorageStream) and storage not in self._storage.get(batch.instance, ()):
                self._storage.setdefault(batch.instance, []).append(storage)
        fed += self._storage.get(batch.instance, ())
        for stream in fed:
            part = batch.parts.get(self._places[stream.source.key])
            self._publish(stream.take(batch, part, received_at))
            now = time.thread_time()
            stream.counts.seconds += now - began
            began = now

    async def _meet(self, found: Sequence[Reported]) -> Counter[ReportRefusal]:
        """Begin to read the places that are new."""
        refused: Counter[ReportRefusal] = Counter()
        new: dict[str, Place] = {}
        for batch in found:
            memory = [Place(batch.instance, "", model) for model in self._decoder.models]
            for place in dict.fromkeys((*memory, *batch.parts)):
                if place in self._at:
                    continue
                name = replica_id(place)
                known = None if name is None else self.streams.get((name, 0))
                if name is None:
                    refused["bad_name"] += 1
                elif self._taken(name) or known is not None or new.get(name, place) != place:
                    refused["replica_id_taken"] += 1
                elif len(self.streams) + len(new.keys() | {name}) > MAX_SOURCES:
                    refused["too_many_sources"] += 1
                else:
                    new[name] = place
        await self._begin(new)
        return refused

    async def _go_on(self) -> None:
        """Continue the sources of before the start: those of servers that fell silent have to end, too."""
        async with self._taking:
            open_before: dict[str, Place] = {}
            for place in [Place(*names) for names in await self._surely(self._positions.places)]:
                name = replica_id(place)
                if name is not None and place.model in self._decoder.models and not self._taken(name):
                    open_before[name] = place
            now = time.time()
            for place in open_before.values():
                if place.instance:
                    self._liveness.reported(place.instance, 0, now)
            await self._begin(open_before)

    async def _begin(self, new: Mapping[str, Place]) -> None:
        """Begin to read places, by their names."""
        if not new:
            return
        sources = {name: source_at(place, name, self._settings.lmcache) for name, place in new.items()}
        positions = await self._surely(lambda: self._positions.resume([*sources.values()]))
        for name, place in new.items():
            self._begin_one(place, sources[name], positions[name, 0])

    async def _surely(self, ask: Callable[[], Awaitable[Value]]) -> Value:
        """Ask the positions until they answer."""
        while True:
            try:
                return await ask()
            except SourcesNotAdded as error:
                self._telemetry.sources_not_added(str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _begin_one(self, place: Place, source: Source, position: PositionRecord) -> None:
        kind = StorageStream if place.backend else MemoryStream
        stream = kind(
            source,
            self._settings.connector,
            time.time,
            Hearers(self._telemetry.stream_event, partial(self._open_runs.opened, source.key)),
            position,
            "made_up_id" if made_up(place.instance) and not place.backend else None,
        )
        self.streams[source.key] = self._at[place] = stream
        self._places[source.key] = place
        if isinstance(stream, StorageStream):
            for server in stream.servers:
                self._storage.setdefault(server, []).append(stream)

    def _end(self, key: SourceKey, reason: ClosedReason, now: float) -> None:
        """Stop reading a place; a report about it begins another session."""
        stream = self.streams.pop(key)
        place = self._places.pop(key)
        del self._at[place]
        storage = self._storage.get(place.instance, [])
        if isinstance(stream, StorageStream) and stream in storage:
            storage.remove(stream)
        self._publish(stream.end(reason, now))
        self._positions.forget(key)

    def _may_report(self, place: Place) -> bool:
        """Return whether a place has a server that is there, or is shared by several."""
        memory = (Place(place.instance, "", model) for model in self._decoder.models)
        return not place.instance or any(each in self._at for each in memory)

    async def _tick(self) -> None:
        """Publish the runs that are old enough."""
        pause = tick_seconds(self._settings.connector.linger_seconds)
        while True:
            await asyncio.sleep(pause)
            self._publish(self._open_runs.closed(self.streams, time.time()))

    async def _look(self) -> None:
        """Publish, for each idle source, whether reports would come, and end sources of silent servers."""
        reports = IdleReports()
        await self._go_on()
        looked_at = time.time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._publisher.full and not self._taking.locked():
                now = time.time()
                self._liveness.missed(now - looked_at)
                self.look(reports, now)
                looked_at = now

    def look(self, reports: IdleReports, now: float) -> None:
        """Do so once, at `now`."""
        self._liveness.look(now, self.read_to)
        for key, place in [*self._places.items()]:
            reason = self._liveness.gone(place, now, self.read_to)
            if reason is not None:
                self._end(key, reason, now)
        begun = {key: stream for key, stream in self.streams.items() if stream.begun}
        heard = [(key, stream.counts.last_received_at) for key, stream in begun.items()]
        for key in reports.due(now, heard):
            self._publish(begun[key].note(SourceStatus(self.connected(key)), now))
        servers = {place.instance for place in self._at}
        self._liveness.keep(servers, now)
        self._decoder.keep(servers)
        # A server that comes back finds what several share where it left it, as long as that knows it.
        kept = {
            server: [stream for stream in storage if server in stream.servers]
            for server, storage in self._storage.items()
        }
        self._storage = {server: storage for server, storage in kept.items() if storage}

    def _publish(self, records: Iterable[EventsRecord]) -> None:
        for record in records:
            self._publisher.add(record)
