"""Pass messages on from the subscriber to be dealt with, in fair turns."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence

from connectors.frames.portion import MAX_PORTION_BYTES, PORTION_SECONDS
from connectors.receive.crowd import Crowd
from connectors.receive.received import Key, Received, Together
from connectors.receive.subscriber import Subscriber
from connectors.receive.turns import Turns


class Pump:
    """Runs in the event loop until the subscriber has stopped and everything was dealt with.

    A source that has more waiting than is still free in the hand-over is paused: it uses more than its share,
    so its own queues fill, and the others' do not.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        *,
        deal: Callable[[Sequence[Received]], Iterable[float]],
        gather: Callable[[Together, Container[Key]], tuple[list[Received], float]],
        room: Callable[[], Awaitable[None]],
        paused: Callable[[Key], None],
    ) -> None:
        """`deal` deals with portions of several sources one by one, after `room` has returned, and yields the
        processor seconds of each. `gather` deals with the ordinary ones of messages that came together, but
        not with those of its second argument, the sources that wait; it returns the rest and the processor
        seconds that it took. `paused` is called for each pause.
        """
        self._subscriber = subscriber
        self._hand_over = subscriber.hand_over
        self._deal = deal
        self._gather = gather
        self._room = room
        self._tell_paused = paused
        self._turns = Turns()
        self._crowd = Crowd()
        self._paused: set[Key] = set()

    @property
    def waiting_messages(self) -> int:
        """Messages that were received and not yet dealt with."""
        return self._turns.messages + self._hand_over.waiting_messages

    def behind(self, source: Key) -> bool:
        """Tell whether messages of a source may be waiting."""
        while self._collect()[0]:
            pass
        if self._crowd and not self._hand_over.empty:
            return True
        return source in self._paused or self._turns.bytes_of(source) > 0

    def charge(self, source: Key, seconds: float) -> None:
        """Count time that was spent on a source elsewhere."""
        self._turns.charge(source, seconds)

    async def run(self) -> None:
        """Run until the end. Raises what ended the subscriber before its time."""
        turns, hand_over = self._turns, self._hand_over
        since_pause = 0
        busy_seconds = 0.0
        while True:
            ended = hand_over.ended
            size, seconds = self._collect()
            since_pause += size
            busy_seconds += seconds
            rest = turns.rest(time.monotonic()) if turns and not ended else 0.0
            if turns and not rest:
                for received, seconds in self._dealt(ended=ended):
                    since_pause += received.size
                    busy_seconds += seconds
            elif not size:
                if ended and not turns:
                    return
                await hand_over.wait(rest or None)
                continue
            if since_pause >= MAX_PORTION_BYTES or busy_seconds >= PORTION_SECONDS:
                # The producer and the timers have to run, too.
                since_pause = 0
                busy_seconds = 0.0
                await asyncio.sleep(0)
            await self._room()

    def _dealt(self, *, ended: bool) -> Iterator[tuple[Received, float]]:
        """Deal with the portions whose turn it is; yield each and its processor seconds."""
        began = time.monotonic()
        portions = self._turns.next(math.inf if ended else began)
        for received, seconds in zip(portions, self._deal(portions), strict=True):
            now = time.monotonic()
            self._turns.took(received, seconds, now, rests=now - began)
            began = now
            self._go_on(received)
            yield received, seconds

    def _collect(self) -> tuple[int, float]:
        """Let what arrived wait for its turn, but gather the ordinary ones of messages that came together.

        Gathering costs so little that it needs no turn. It ends after MAX_PORTION_BYTES, or when most sources
        wait (`crowd`). Returns the bytes that came together, and processor seconds.
        """
        size, busy_seconds = 0, 0.0
        while (
            size < MAX_PORTION_BYTES
            and not self._crowded()
            and (arrived := self._hand_over.take()) is not None
        ):
            if isinstance(arrived, Together):
                self._look_for_crowd(arrived)
                others, seconds = self._gather(arrived, self._turns)
                size += arrived.size
                busy_seconds += seconds
                for received in others:
                    self._add(received)
            else:
                self._add(arrived)
        return size, busy_seconds

    def _look_for_crowd(self, arrived: Together) -> None:
        if not self._turns:
            return
        waiting = sum(source in self._turns for source in arrived.sources)
        if 2 * waiting >= len(arrived.sources):
            self._crowd.gathers(len(self._turns), size=self._turns.size, now=time.monotonic())

    def _crowded(self) -> bool:
        """Tell whether to leave what arrived alone, because most sources wait and are dealt with first."""
        if not self._crowd:
            return False
        now = time.monotonic()
        return self._crowd.lasts(self._turns.able(now), size=self._turns.size, now=now)

    def _add(self, received: Received) -> None:
        source = received.source
        self._turns.add(received, time.monotonic())
        crowds = self._turns.bytes_of(source) > self._hand_over.free
        if crowds and source not in self._paused:
            self._paused.add(source)
            self._subscriber.pause(source)
            self._tell_paused(source)

    def _go_on(self, received: Received) -> None:
        source = received.source
        if source not in self._paused:
            return
        if received.last or 2 * self._turns.bytes_of(source) <= self._hand_over.free:
            self._paused.remove(source)
            self._subscriber.go_on(source)
