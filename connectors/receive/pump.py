"""Take messages from the subscriber to those who deal with them, in fair turns."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from connectors.frames.portion import MAX_PORTION_BYTES, PORTION_SECONDS
from connectors.receive.received import Key, Received
from connectors.receive.subscriber import Subscriber
from connectors.receive.turns import Turns


class Pump:
    """Runs in the event loop until the subscriber has stopped and everything was dealt with.

    A source of which more waits than is still free of the hand-over is paused: it takes more than its share,
    so its own queues fill, and the others' do not.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        *,
        deal: Callable[[Sequence[Received]], Iterable[float]],
        room: Callable[[], Awaitable[None]],
        paused: Callable[[Key], None],
    ) -> None:
        """`deal` takes portions of several sources, when `room` has returned, one after the other, and gives
        the processor seconds of each; `paused` is told of each pause.
        """
        self._subscriber = subscriber
        self._deal = deal
        self._room = room
        self._tell_paused = paused
        self._turns = Turns()
        self._paused: set[Key] = set()

    @property
    def waiting_messages(self) -> int:
        """Messages that were received and not dealt with."""
        return self._turns.messages + self._subscriber.waiting_messages

    def behind(self, source: Key) -> bool:
        """Tell whether something of a source may wait."""
        self._collect()
        return source in self._paused or self._turns.bytes_of(source) > 0

    def charge(self, source: Key, seconds: float) -> None:
        """Count time that was spent on a source elsewhere."""
        self._turns.charge(source, seconds)

    async def run(self) -> None:
        """Raises what ended the subscriber before its time."""
        turns, subscriber = self._turns, self._subscriber
        since_pause = 0
        busy_seconds = 0.0
        while True:
            ended = subscriber.ended
            self._collect()
            if not turns:
                if ended:
                    return
                await subscriber.wait(None)
                continue
            began = time.monotonic()
            if not ended and (rest := turns.rest(began)):
                await subscriber.wait(rest)
                continue
            portions = turns.next(math.inf if ended else began)
            for received, seconds in zip(portions, self._deal(portions), strict=True):
                now = time.monotonic()
                turns.took(received, seconds, now, rests=now - began)
                began = now
                self._go_on(received)
                since_pause += received.size
                busy_seconds += seconds
            if since_pause >= MAX_PORTION_BYTES or busy_seconds >= PORTION_SECONDS:
                # The producer and the timers have to run, too.
                since_pause = 0
                busy_seconds = 0.0
                await asyncio.sleep(0)
            await self._room()

    def _collect(self) -> None:
        while (received := self._subscriber.take()) is not None:
            source = received.source
            self._turns.add(received, time.monotonic())
            crowds = self._turns.bytes_of(source) > self._subscriber.free_bytes
            if crowds and source not in self._paused:
                self._paused.add(source)
                self._subscriber.pause(source)
                self._tell_paused(source)

    def _go_on(self, received: Received) -> None:
        source = received.source
        if source not in self._paused:
            return
        if received.last or 2 * self._turns.bytes_of(source) <= self._subscriber.free_bytes:
            self._paused.remove(source)
            self._subscriber.go_on(source)
