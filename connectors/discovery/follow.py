"""Keep the sources of a running connector those that settings, names and connecting engines give."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from connectors.descriptors import DescriptorsExhausted
from connectors.discovery.bound import BoundReplicas, TopicReason, TopicRefused
from connectors.discovery.dns import DnsTelemetry, NameWatch
from connectors.discovery.file import FileTelemetry, FileWatch, SettingsFile
from connectors.discovery.plan import Clash, merge, plan
from connectors.discovery.shards import Shard
from connectors.discovery.static import list_sources
from connectors.listening import Listening, Peer
from connectors.position_reader import PositionsUnreadable
from connectors.positions import PositionsUnwritable
from connectors.source import Source, SourceKey
from schemas.settings import Settings

GATHER_SECONDS = 0.05
"""Changes that come together are carried out together."""
RETRY_SECONDS = 2.0
SILENCE_SECONDS = 1.0
"""Which of the engines that connected have gone is looked up this often."""
_REPLICAS = "replicas"
_BIND = "discovery.bind"


class Reader(Protocol):
    """What reads the sources."""

    @property
    def sources(self) -> Mapping[SourceKey, Source]: ...
    async def add(self, sources: Sequence[Source]) -> None: ...
    async def remove(self, sources: Collection[SourceKey]) -> None: ...
    def readdress(self, source: Source) -> None: ...
    def release_held(self, expected: Collection[SourceKey]) -> None: ...
    def silent(self, source: SourceKey) -> bool: ...


class FollowTelemetry(FileTelemetry, DnsTelemetry, Protocol):
    """Where discovery tells what happens."""

    def sources_changed(self, added: int, removed: int, readdressed: int) -> None: ...
    def sources_not_added(self, reason: str) -> None: ...
    def replica_clashed(self, clash: Clash) -> None: ...
    def topic_refused(self, topic: bytes, reason: TopicReason, messages: int) -> None: ...


class Follower:
    """Knows what each origin wants and makes the reader follow.

    Where two origins claim a replica, the settings come before names, and names before engines that
    connect. The shard decides about the former two; an engine that connects has chosen its connector.
    """

    def __init__(
        self,
        settings: Settings,
        file: SettingsFile | None,
        reader: Reader,
        telemetry: FollowTelemetry,
    ) -> None:
        """`file` is looked at again and again, if there is one."""
        self._settings = settings
        self._reader = reader
        self._telemetry = telemetry
        self._shard = Shard.of(settings.connector.shard)
        self._origins: dict[str, Sequence[Source]] = {_REPLICAS: ()}
        self._bound = BoundReplicas(settings.discovery.bind, self._configured)
        self._file = None if file is None else FileWatch(file, settings, telemetry)
        self._names: dict[str, NameWatch] = {}
        for number, name in enumerate(settings.discovery.dns):
            origin = f"discovery.dns[{number}]"
            self._origins[origin] = ()
            self._names[origin] = NameWatch(
                name,
                misses=settings.discovery.dns_misses,
                timeout_seconds=settings.discovery.dns_timeout_seconds,
                telemetry=telemetry,
            )
        self._origins[_BIND] = ()
        self._bound_version = 0
        self._clashes: set[Clash] = set()
        self._changed = asyncio.Event()

    @property
    def listenings(self) -> Sequence[Listening]:
        """Where engines connect to us."""
        return self._bound.listenings

    async def begin(self) -> None:
        """Have the first sources read. Raises ReplicaInvalid, and what `Reader.add` raises."""
        self._take(_REPLICAS, list_sources(self._settings.replicas))
        looks = await asyncio.gather(*(watch.look() for watch in self._names.values()))
        for origin, sources in zip(self._names, looks, strict=True):
            if sources is not None:
                self._take(origin, sources)
        self._changed.clear()
        await self._carry_out()

    async def follow(self) -> None:
        """Follow all origins, for ever; raises what ends one of them."""
        discovery = self._settings.discovery
        parts = [self._keep(), self._watch_silence()]
        if self._file is not None:
            parts.append(self._file.follow(discovery.file_seconds, partial(self._take, _REPLICAS)))
        for origin, watch in self._names.items():
            parts.append(watch.follow(discovery.dns_seconds, partial(self._take, origin)))
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def source_of(self, peer: Peer, messages: int, now: float) -> Source | None:
        """Return the source that a peer publishes, which may not be read yet; None if it is refused."""
        try:
            source = self._bound.meet(peer, now)
        except TopicRefused as refusal:
            self._telemetry.topic_refused(refusal.topic, refusal.reason, messages)
            return None
        self._take_bound()
        return source

    def peer(self, source: SourceKey) -> Peer | None:
        """Return who publishes a source; None if it is one that we connect to."""
        return self._bound.peer(source)

    def _configured(self, replica: str) -> bool:
        return any(
            source.replica == replica
            for origin, sources in self._origins.items()
            if origin != _BIND
            for source in sources
        )

    def _take(self, origin: str, sources: Sequence[Source]) -> None:
        self._change(origin, self._shard.share(sources))

    def _take_bound(self) -> None:
        if self._bound.version != self._bound_version:
            self._bound_version = self._bound.version
            self._change(_BIND, self._bound.sources)

    def _change(self, origin: str, sources: Sequence[Source]) -> None:
        self._origins[origin] = sources
        self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            try:
                await self._carry_out()
            except (PositionsUnreadable, PositionsUnwritable, DescriptorsExhausted) as error:
                self._telemetry.sources_not_added(str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    async def _carry_out(self) -> None:
        wanted, clashes = merge(self._origins)
        for clash in set(clashes) - self._clashes:
            self._telemetry.replica_clashed(clash)
        self._clashes = set(clashes)
        changes = plan(self._reader.sources, wanted)
        await self._reader.remove([source.key for source in changes.removed])
        for source in changes.readdressed:
            self._reader.readdress(source)
        if changes.added:
            await self._reader.add(changes.added)
        if not self._changed.is_set():
            # Otherwise there are sources wanted by now that this round did not know.
            self._reader.release_held(wanted)
        if changes:
            self._telemetry.sources_changed(
                len(changes.added), len(changes.removed), len(changes.readdressed)
            )

    async def _watch_silence(self) -> None:
        while True:
            await asyncio.sleep(SILENCE_SECONDS)
            for source in self._bound.sources:
                if self._reader.silent(source.key):
                    self._bound.leave(source.key)
            self._take_bound()
