"""Whatever one emitter of a shared socket sends under its numbers, another one beside it loses nothing."""

from __future__ import annotations

import itertools

import msgspec

from connectors.order.stream import SourceStream
from connectors.receive.emitter import Emitter
from connectors.sources import Source
from schemas.settings import Connector

NOW = 1_800_000_000.0
TOPIC = "kv@good@m"


class Harmed(AssertionError):
    """The good emitter's stream lost something, or did not understand what is its own."""


class Emitters:
    """A good emitter, whose stream hears each payload of the other one between two of its own."""

    def __init__(self) -> None:
        source = Source("good", 0, "m", "t", "m/s/t", "tcp://x:1", topic=TOPIC, shared_sequence=True)
        self._view = Emitter(TOPIC).view
        self._stream = SourceStream(source, Connector(), clock=lambda: NOW)
        self._numbers = itertools.count()
        self._own = msgspec.msgpack.encode([NOW, [["BlockStored", [7], None, [], 16, None, "lmcache-l1"]]])

    def check(self, payload: bytes) -> None:
        """Raises Harmed."""
        own, other, next_own = (next(self._numbers).to_bytes(8, "big") for _ in range(3))
        topic = TOPIC.encode()
        heard = [(topic, own, self._own), (b"kv@bad@m", other, payload), (topic, next_own, self._own)]
        before = self._stream.counts.batches
        self._stream.feed_all(self._view(heard), NOW)
        self._stream.flush()
        counts = self._stream.counts
        if counts.batches != before + 3 or counts.lost_batches or counts.restarts or counts.undecodable:
            raise Harmed(f"{counts.batches - before} batches, {counts}")
