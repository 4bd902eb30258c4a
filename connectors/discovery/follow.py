"""Keeps the sources that a running connector reads in line with those that the origins want."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from connectors.discovery.bound_origin import BoundOrigin, BoundTelemetry
from connectors.discovery.file import SettingsFile
from connectors.discovery.origin import Origin, OriginTelemetry, origins
from connectors.discovery.plan import Clash, merge, plan
from connectors.discovery.shards import Shard
from connectors.sources import Listening, Peer, Source, SourceKey, SourcesNotAdded
from schemas.reasons import ClosedReason
from schemas.settings import Settings

GATHER_SECONDS = 0.05
"""Changes within this time are carried out together."""
RETRY_SECONDS = 2.0


class Reader(Protocol):
    """What reads the sources."""

    @property
    def sources(self) -> Mapping[SourceKey, Source]: ...
    async def add(self, sources: Sequence[Source]) -> None:
        """Begin to read sources. Raises SourcesNotAdded, in which case it adds none."""

    async def remove(self, sources: Collection[SourceKey], reason: ClosedReason) -> None: ...
    def readdress(self, source: Source) -> None: ...
    def release_pending(self, expected: Collection[SourceKey]) -> None: ...
    def silent(self, source: SourceKey) -> bool: ...


class FollowTelemetry(OriginTelemetry, BoundTelemetry, Protocol):
    """Where discovery reports what happens."""

    def sources_changed(self, added: int, removed: int, readdressed: int) -> None: ...
    def sources_not_added(self, reason: str) -> None: ...
    def replica_clashed(self, clash: Clash) -> None: ...


class Follower:
    """Knows what each origin wants and makes the reader follow.

    Where two origins claim a replica, the settings come before names, names before pods, and
    these before engines that connect.
    """

    def __init__(
        self,
        settings: Settings,
        file: SettingsFile | None,
        reader: Reader,
        telemetry: FollowTelemetry,
    ) -> None:
        """`file` is watched for changes, if there is one."""
        self._reader = reader
        self._telemetry = telemetry
        self._shard = Shard.of(settings.connector.shard)
        self._bound = BoundOrigin(
            settings.discovery.bind, taken=self._elsewhere, silent=reader.silent, telemetry=telemetry
        )
        self._origins = origins(settings, file, self._bound, telemetry)
        self._wanted: dict[str, Sequence[Source]] = {origin.name: () for origin in self._origins}
        self._clashes: set[Clash] = set()
        self._changed = asyncio.Event()

    @property
    def listenings(self) -> Sequence[Listening]:
        """Where engines connect to us."""
        return self._bound.listenings

    async def begin(self) -> None:
        """Have the first sources read. Raises ReplicaInvalid and SourcesNotAdded."""
        await asyncio.gather(*(origin.begin() for origin in self._origins))
        for origin in self._origins:
            self._take(origin)
        self._changed.clear()
        await self._carry_out()

    async def follow(self) -> None:
        """Follow all origins, for ever; raise the error that ends one of them."""
        following = [origin.follow(partial(self._take, origin)) for origin in self._origins]
        tasks = [asyncio.create_task(part) for part in (self._keep(), *following)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def source_of(self, peer: Peer, messages: int, now: float) -> Source | None:
        """Return the source that a peer publishes, which may not be read yet; None if it is refused."""
        before = self._bound.version
        source = self._bound.source_of(peer, messages, now)
        if self._bound.version != before:
            self._take(self._bound)
        return source

    def peer(self, source: SourceKey) -> Peer | None:
        """Return who publishes a source; None if it is one that we connect to."""
        return self._bound.peer(source)

    def _elsewhere(self, replica: str) -> bool:
        return any(
            source.replica == replica
            for name, sources in self._wanted.items()
            if name != self._bound.name
            for source in sources
        )

    def _take(self, origin: Origin) -> None:
        self._wanted[origin.name] = self._shard.share(origin.sources) if origin.sharded else origin.sources
        self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            try:
                await self._carry_out()
            except SourcesNotAdded as error:
                self._telemetry.sources_not_added(str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    async def _carry_out(self) -> None:
        wanted, clashes = merge(self._wanted)
        for clash in set(clashes) - self._clashes:
            self._telemetry.replica_clashed(clash)
        self._clashes = set(clashes)
        changes = plan(self._reader.sources, wanted)
        await self._reader.remove([source.key for source in changes.removed], "removed")
        await self._reader.remove([source.key for source in changes.restarted], "restarted")
        for source in changes.readdressed:
            self._reader.readdress(source)
        if changes.added:
            await self._reader.add(changes.added)
        if not self._changed.is_set():
            # Otherwise sources may be wanted by now that this round did not know.
            self._reader.release_pending(wanted)
        if changes:
            self._telemetry.sources_changed(
                len(changes.added),
                len(changes.removed) + len(changes.restarted),
                len(changes.readdressed),
            )
