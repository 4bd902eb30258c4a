"""Engines that connect to us, as an origin: they appear with their first message, and leave when silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from connectors.discovery.bound import BoundReplicas, TopicReason, TopicRefused
from connectors.sources import Listening, Peer, Source, SourceKey
from schemas.discovery_settings import BoundEndpoint

SILENCE_SECONDS = 1.0
"""How often to look for engines that have gone."""


class BoundTelemetry(Protocol):
    """Where refused topics are counted."""

    def topic_refused(self, topic: bytes, reason: TopicReason, messages: int) -> None: ...


class BoundOrigin:
    """The replicas of `discovery.bind`. An engine chooses its connector by connecting, whatever the shard."""

    name = "discovery.bind"
    sharded = False

    def __init__(
        self,
        endpoints: Iterable[BoundEndpoint],
        *,
        taken: Callable[[str], bool],
        silent: Callable[[SourceKey], bool],
        telemetry: BoundTelemetry,
    ) -> None:
        """`taken` returns whether another origin has a replica id, `silent` whether a source has gone."""
        self._replicas = BoundReplicas(endpoints, taken)
        self._silent = silent
        self._telemetry = telemetry

    @property
    def listenings(self) -> Sequence[Listening]:
        """Where engines connect to us."""
        return self._replicas.listenings

    @property
    def sources(self) -> list[Source]:
        return self._replicas.sources

    @property
    def version(self) -> int:
        """Grows with every change of `sources`."""
        return self._replicas.version

    def source_of(self, peer: Peer, messages: int, now: float) -> Source | None:
        """Return the source that a peer publishes, which may be new; None if its topic is refused."""
        try:
            return self._replicas.meet(peer, now)
        except TopicRefused as refusal:
            self._telemetry.topic_refused(refusal.topic, refusal.reason, messages)
            return None

    def peer(self, source: SourceKey) -> Peer | None:
        """Return who publishes a source; None if it is one that we connect to."""
        return self._replicas.peer(source)

    async def begin(self) -> None:
        """Do nothing: nobody has connected yet."""

    async def follow(self, changed: Callable[[], None]) -> None:
        """Remove engines that are silent; `source_of` adds new ones."""
        while True:
            await asyncio.sleep(SILENCE_SECONDS)
            before = self.version
            for source in self.sources:
                if self._silent(source.key):
                    self._replicas.leave(source.key)
            if self.version != before:
                changed()
