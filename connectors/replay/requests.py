"""Send the replay requests that streams want, and give them the answers; a bounded number at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from connectors.frames.portion import REST_FROM_SECONDS, Portion
from connectors.order.stream import SourceStream
from connectors.process.stopping import ended
from connectors.replay.client import Connection, Replayer
from connectors.sources import SourceKey
from schemas.events import EventsRecord
from schemas.reasons import ReplayOutcome

LOOK_SECONDS = 0.1
"""How often all streams are asked what they want; while a stream is being read, that is seen at once."""
CONNECTING = 64
"""Most connections made at a time."""
URGENT_REQUESTS = 16
"""Most urgent requests (`Ask.urgent`) in flight: each answer may fill a queue."""
OTHER_REQUESTS = 16
"""Most other requests in flight: engines that do not answer must not keep the urgent ones waiting."""


class ReplayRequests:
    """At most one request for each stream. A stream that ends must be removed from `streams`."""

    def __init__(
        self,
        streams: Mapping[SourceKey, SourceStream],
        *,
        timeout_seconds: float,
        publish: Callable[[Iterable[EventsRecord]], None],
        room: Callable[[], Awaitable[None]],
        charge: Callable[[SourceKey, float], None] = lambda source, seconds: None,
    ) -> None:
        """`room` returns when `publish` may be called again; `charge` gets the time that an answer took."""
        self._streams = streams
        self._publish = publish
        self._room = room
        self._charge = charge
        self._replayer = Replayer(timeout_seconds=timeout_seconds)
        self._requests: dict[SourceKey, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        self._stopped = False
        self._connecting = asyncio.Semaphore(CONNECTING)
        self._urgent = asyncio.Semaphore(URGENT_REQUESTS)
        self._other = asyncio.Semaphore(OTHER_REQUESTS)
        self.task: asyncio.Task[None] | None = None
        """Runs from the start to the stop; raises what a request should not have raised."""

    def start(self) -> None:
        self.task = asyncio.create_task(self._run(), name="recovering")

    def send_wanted(self, stream: SourceStream) -> None:
        """Send the request that a stream wants, if it wants one and has none under way; none after a stop."""
        if self._stopped or stream.ask is None:
            return
        key = stream.source.key
        if key not in self._requests:
            task = self._requests[key] = asyncio.create_task(self._request(stream))
            task.add_done_callback(lambda task: self._finished(key, task))

    async def stop(self) -> None:
        """Give up the requests that are under way.

        What streams want from now on is for a later start to ask.
        """
        self._stopped = True
        await ended(self.task, *self._requests.values())
        self._replayer.close()

    async def _run(self) -> None:
        while self._failure is None:
            for stream in list(self._streams.values()):
                self.send_wanted(stream)
            await asyncio.sleep(LOOK_SECONDS)
        raise self._failure

    def _finished(self, key: SourceKey, task: asyncio.Task[None]) -> None:
        del self._requests[key]
        if not task.cancelled():
            self._failure = task.exception() or self._failure

    async def _request(self, stream: SourceStream) -> None:
        # What is missing, and whether it is urgent, may change while other tasks run.
        while stream.ask is not None and self._is_current(stream):
            async with self._connecting:
                endpoint = stream.source.replay_endpoint
                connection = None if endpoint is None else await self._replayer.connect(endpoint)
            try:
                outcome = await self._ask(stream, connection)
            finally:
                if connection is not None:
                    connection.close()
            if outcome is not None and self._is_current(stream):
                self._publish(stream.replay_ended(outcome, time.time()))

    async def _ask(self, stream: SourceStream, connection: Connection | None) -> ReplayOutcome | None:
        """Send the request that the stream wants by now; return None if it no longer wants one."""
        ask = stream.ask
        if ask is None:
            return None
        async with self._urgent if ask.urgent else self._other:
            ask = stream.ask
            if ask is None or not self._is_current(stream):
                return None
            stream.asked()
            if connection is None:
                return "unreachable"
            return await connection.replay(ask.first, self._taking(stream))

    def _taking(self, stream: SourceStream) -> Callable[[list[tuple[int, bytes]]], Awaitable[bool]]:
        portion = Portion()

        async def take(batches: list[tuple[int, bytes]]) -> bool:
            at = 0
            while at < len(batches):
                if not self._is_current(stream):
                    return False
                began, worked, end, size = time.monotonic(), time.thread_time(), at, 0
                while end < len(batches) and (end == at or size < portion.bytes):
                    size += len(batches[end][1])
                    end += 1
                self._publish(stream.replayed(batches[at:end], time.time()))
                at = end
                seconds = time.thread_time() - worked
                portion.took(size, seconds)
                stream.counts.seconds += seconds
                self._charge(stream.source.key, seconds)
                waited = time.monotonic() - began
                await asyncio.sleep(waited if waited >= REST_FROM_SECONDS else 0)
                await self._room()
            return not stream.enough

        return take

    def _is_current(self, stream: SourceStream) -> bool:
        return self._streams.get(stream.source.key) is stream
