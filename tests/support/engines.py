"""Engines for tests: their sockets, what they publish on them, and the memory of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import zmq

from pipeline.simulator.publisher import Publisher, PublisherSettings
from schemas.discovery_settings import Replica

Context = zmq.Context[zmq.Socket[bytes]]
ANYWHERE = "tcp://127.0.0.1:0"


def stored(block: int) -> list[Any]:
    """Return a BlockStored event of one block."""
    return ["BlockStored", [block], None, [1, 2], 2, None, "GPU", None]


class PubSocket:
    """An engine without replay: a PUB socket that binds, or connects, and forgets what it sent."""

    def __init__(
        self,
        context: Context,
        endpoint: str = ANYWHERE,
        *,
        connects: bool = False,
        topic: bytes = b"",
    ) -> None:
        self._socket = context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, 1_000_000)
        self._topic = topic
        self._seq = 0
        if connects:
            self._socket.connect(endpoint)
        else:
            self._socket.bind(endpoint)
        self.endpoint = bytes(self._socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    async def subscribed(self) -> None:
        """Return when somebody subscribes; once for each subscription."""
        assert await asyncio.to_thread(self._socket.poll, 60_000), "nobody subscribed"
        self._socket.recv()

    def send(self, messages: Sequence[Sequence[bytes]]) -> None:
        """Send messages as they are."""
        for frames in messages:
            self._socket.send_multipart(frames)

    def publish(self, count: int) -> None:
        """Send batches that are numbered on, each of which stores the block of its number."""
        for _ in range(count):
            payload = msgspec.msgpack.encode([1_700_000_000.0 + self._seq, [stored(self._seq)], 0])
            self.send([[self._topic, self._seq.to_bytes(8, "big"), payload]])
            self._seq += 1

    def close(self) -> None:
        self._socket.close(0)


class RememberingEngine:
    """An engine with PUB and ROUTER sockets; every payload is kept, life by life."""

    def __init__(
        self, context: Context, name: str = "engine", *, replay: bool = True, **settings: Any
    ) -> None:
        """`settings` are those of the publisher."""
        self.name = name
        self.publisher = Publisher(
            PublisherSettings(ANYWHERE, ANYWHERE if replay else None, **settings), context
        )
        self.lives: list[dict[int, bytes]] = [{}]
        """Payloads by sequence number."""
        self._stored = 0

    @property
    def replica(self) -> Replica:
        return Replica(
            id=self.name,
            model="m",
            endpoint=self.publisher.endpoint,
            replay_endpoint=self.publisher.replay_endpoint,
        )

    @property
    def published(self) -> list[bytes]:
        """Payloads of the present life."""
        return list(self.lives[-1].values())

    def publish(self, count: int = 1, *, lost: bool = False) -> None:
        """Each batch stores a block that was never there, and every third removes the one before.

        Lost ones are in the buffer for replays and never on the wire.
        """
        if lost:
            self.publisher.drop_next(count)
        for _ in range(count):
            self._stored += 1
            events = [stored(self._stored)]
            if self._stored % 3 == 0:
                events.append(["BlockRemoved", [self._stored - 1], "GPU"])
            payload = msgspec.msgpack.encode([time.time(), events, 0])
            self.lives[-1][self.publisher.publish(payload)] = payload

    def restart(self) -> None:
        self.publisher.restart()
        self.lives.append({})
