"""The order in which messages of many sources are dealt with, so that none waits for a costly one. No IO.

Fair queueing by measured time: of the sources that have something waiting, the one that has had least time
comes next; one that comes back after a pause starts level with the others. So a source that needs more than
its share makes only itself wait. It still gets all the time that no other source needs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from heapq import heappop, heappush

from connectors.frames.portion import PORTION_SECONDS, REST_FROM_SECONDS, Portion
from connectors.receive.received import Key, Received

NEIGHBOUR_BYTES = 64 << 10
"""Most bytes that portions of several sources have together: larger ones gain nothing from being joined."""
MAX_REMEMBERED = 10_000
"""Most sources whose cost is remembered while they have nothing waiting."""


class Turns:
    """What was handed over and waits for its turn. `now` is any clock, seconds."""

    def __init__(self) -> None:
        self._waiting: dict[Key, deque[Received]] = {}
        self._bytes: dict[Key, int] = {}
        self._active: list[tuple[float, int, Key]] = []
        self._resting: list[tuple[float, int, Key]] = []
        self._had: dict[Key, float] = {}
        self._level = 0.0
        self._entered = 0
        self._portions: dict[Key, Portion] = {}
        self._rests_until: dict[Key, float] = {}

    def __len__(self) -> int:
        """Return how many sources have something waiting."""
        return len(self._waiting)

    def __contains__(self, source: object) -> bool:
        """Tell whether a source has something waiting."""
        return source in self._waiting

    @property
    def messages(self) -> int:
        """Messages that wait."""
        return sum(len(received.messages) for queue in self._waiting.values() for received in queue)

    @property
    def size(self) -> int:
        """Bytes of the hand-over that wait."""
        return sum(self._bytes.values())

    def bytes_of(self, source: Key) -> int:
        """Return how much a source has waiting, in bytes of the hand-over."""
        return self._bytes.get(source, 0)

    def add(self, received: Received, now: float) -> None:
        """Queue messages behind those of the same source."""
        source = received.source
        queue = self._waiting.get(source)
        if queue is None:
            queue = self._waiting[source] = deque()
            self._bytes[source] = 0
            self._enter(source, now)
        if received.left_out and queue and queue[-1].left_out:
            # A great many of these come while a flooding peer is paused.
            received = replace(received, left_out=received.left_out + queue.pop().left_out)
        queue.append(received)
        self._bytes[source] += received.size

    def able(self, now: float) -> int:
        """Return how many sources have something waiting and need not rest."""
        self._wake_up(now)
        return len(self._active)

    def rest(self, now: float) -> float:
        """Return how long all sources with something waiting still rest; 0 if one of them need not."""
        self._wake_up(now)
        return 0.0 if self._active or not self._resting else self._resting[0][0] - now

    def next(self, now: float) -> list[Received]:
        """Remove and return a portion of the source whose turn it is. Needs `rest` to be 0.

        Portions of other sources whose turn is near come with it, as long as all together are small and take
        no longer than one portion may. `took` must follow for each, in order.
        """
        self._wake_up(now)
        active = self._active
        self._level = active[0][0]
        near = self._level + PORTION_SECONDS
        seconds, room = 0.0, NEIGHBOUR_BYTES
        portions: list[Received] = []
        while active and active[0][0] <= near:
            source = active[0][2]
            portion = self._portions.get(source)
            if portion is None:
                portion = self._portions[source] = Portion()
            queue = self._waiting[source]
            size = min(queue[0].size, portion.bytes)
            seconds += portion.seconds(size)
            room -= size
            if portions and (seconds > PORTION_SECONDS or room < 0):
                break
            heappop(active)
            received = queue[0]
            if received.size > size and len(received.messages) > 1:
                received, queue[0] = received.split(size)
            else:
                queue.popleft()
            self._bytes[source] -= received.size
            portions.append(received)
        return portions

    def took(self, received: Received, seconds: float, now: float, *, rests: float = 0.0) -> None:
        """Charge a portion to its source, in processor time; `rests` is how long others waited for it."""
        source = received.source
        self.charge(source, seconds)
        if received.size:
            self._portions[source].took(received.size, seconds)
        if rests >= REST_FROM_SECONDS:
            self._rests_until[source] = now + rests
        if self._waiting[source]:
            self._enter(source, now)
        else:
            del self._waiting[source], self._bytes[source]
        if not self._waiting:
            self._had.clear()
            self._level = 0.0
        if len(self._portions) > MAX_REMEMBERED + len(self._waiting):
            self._forget(now)

    def charge(self, source: Key, seconds: float) -> None:
        """Count time that was spent on a source, if anything waited meanwhile."""
        if self._waiting:
            self._had[source] = max(self._had.get(source, 0.0), self._level) + seconds

    def _enter(self, source: Key, now: float) -> None:
        self._entered += 1
        until = self._rests_until.get(source, now)
        if until > now:
            heappush(self._resting, (until, self._entered, source))
        else:
            self._rests_until.pop(source, None)
            heappush(self._active, (max(self._had.get(source, 0.0), self._level), self._entered, source))

    def _wake_up(self, now: float) -> None:
        while self._resting and self._resting[0][0] <= now:
            self._enter(heappop(self._resting)[2], now)

    def _forget(self, now: float) -> None:
        """Forget sources that have nothing waiting and nothing held against them."""
        self._had = {source: had for source, had in self._had.items() if had > self._level}
        self._rests_until = {source: until for source, until in self._rests_until.items() if until > now}
        kept = self._waiting.keys() | self._rests_until.keys()
        self._portions = {source: portion for source, portion in self._portions.items() if source in kept}
