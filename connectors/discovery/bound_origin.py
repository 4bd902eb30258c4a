"""Engines that connect to us, as an origin: they appear with their first message, and leave when silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from connectors.discovery.bound import BoundReplicas, TopicReason, TopicRefused
from connectors.sources import Peer, Source, SourceKey
from schemas.discovery_settings import BoundEndpoint

SILENCE_SECONDS = 1.0
"""How often to look for engines that have gone."""


class BoundTelemetry(Protocol):
    """Where refused topics are counted."""

    def topic_refused(self, topic: bytes, reason: TopicReason, messages: int) -> None: ...


class BoundOrigin(BoundReplicas):
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
        super().__init__(endpoints, taken)
        self._silent = silent
        self._telemetry = telemetry

    def source_of(self, peer: Peer, messages: int, now: float) -> Source | None:
        """Return the source that a peer publishes, which may be new; None if its topic is refused."""
        try:
            return self.meet(peer, now)
        except TopicRefused as refusal:
            self._telemetry.topic_refused(refusal.topic, refusal.reason, messages)
            return None

    async def begin(self) -> None:
        """Do nothing: nobody has connected yet."""

    async def follow(self, changed: Callable[[], None]) -> None:
        """Remove engines that are silent; `source_of` adds new ones."""
        while True:
            await asyncio.sleep(SILENCE_SECONDS)
            before = self.version
            for source in self.sources:
                if self._silent(source.key):
                    self.leave(source.key)
            if self.version != before:
                changed()
