"""Batches of many streams that were scanned together and wait for their streams to take them. No IO.

Most of what engines send is just the next batch. Compiled code puts such batches here, so that a stream does
its work once for all that came within a linger, and not once for each message.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from connectors.normalise.scanner.layout import Bytes, Ints
from connectors.sources import SourceKey

SLOT_BYTES = 4 << 10
"""Bytes of encoded batches that a slot may hold; what goes beyond is taken by the stream at once."""
SLOT_BATCHES = 16
FIRST_SLOTS = 64
DUE, UNTIL_LOOK, ROOM, COUNT, USED, ENGINE_EVENTS, SIZE, SKIPPED, RANK = range(9)
"""Columns of a slot: the number that is due, -1 where no batch may come here; batches until one has to be
looked at; the bytes at which it is full; then of what it holds batches, their bytes, engine events, payload
bytes, and events that were skipped; last the rank that batches must give."""
HEADS = 9
SINCE, UNTIL, PUBLISHED, SECONDS = range(4)
"""Columns of a slot: when its first and last batch were received, when the engine published the last, all in
seconds since the epoch, and the processor time they took."""
TIMES = 4
NOTHING = -1
"""Stands for no batch, and for no slot."""
_NO_HEAD = (NOTHING, *[0] * (HEADS - 1))


class Waiting(NamedTuple):
    """What a stream has to take: batches of consecutive numbers, the first of which is due."""

    encoded: bytes
    """`schemas.events.Batch`es, one after the other."""
    seqs: range
    fingerprints: list[int]
    engine_events: int
    skipped: int
    """Of these, events that change nothing of what is resident."""
    payload_bytes: int
    since: float
    """When the first was received, seconds since the epoch."""
    until: float
    """When the last was received."""
    published_at: float
    """When the engine published the last."""
    seconds: float
    """Processor time that was spent on them."""


class Gathered:
    """A slot for each source: one row of each table.

    The event loop reads and changes slots, too, so `gathering.gather` holds the interpreter's lock.
    """

    def __init__(self) -> None:
        self.encoded: Bytes = np.empty((FIRST_SLOTS, SLOT_BYTES), np.uint8)
        self.fingerprints: Ints = np.empty((FIRST_SLOTS, SLOT_BATCHES), np.int64)
        self.heads: Ints = np.zeros((FIRST_SLOTS, HEADS), np.int64)
        self.times = np.zeros((FIRST_SLOTS, TIMES), np.float64)
        self.head = self.heads.data
        """A view of `heads`, through which single numbers are read and written faster."""
        self._sources: list[SourceKey | None] = [None] * FIRST_SLOTS
        self.numbers: dict[SourceKey, int] = {}
        """The slot of each source."""
        self._free = list(range(FIRST_SLOTS))[::-1]

    def add(self, source: SourceKey) -> Slot:
        """Give a source a slot; nothing may come to it until `admit` says so."""
        if not self._free:
            self._grow()
        number = self._free.pop()
        self._sources[number] = source
        self.numbers[source] = number
        self.heads[number] = _NO_HEAD
        return Slot(self, number)

    def remove(self, slot: Slot) -> None:
        """Free the slot of a source; what it holds is dropped."""
        if slot.number != NOTHING:
            self.heads[slot.number] = _NO_HEAD
            del self.numbers[cast(SourceKey, self._sources[slot.number])]
            self._sources[slot.number] = None
            self._free.append(slot.number)
            slot.number = NOTHING

    def charge(self, slots: Ints | int, seconds: NDArray[np.floating[Any]] | float) -> None:
        """Count processor time spent on what came into one slot, or into several different ones."""
        self.times[slots, SECONDS] += seconds

    def due(self, now: float, seconds: float) -> list[SourceKey]:
        """Return the sources whose first batch is `seconds` old or more, or newer than `now`."""
        (some,) = self.heads[:, COUNT].nonzero()
        if not some.size:
            return []
        age = now - self.times[some, SINCE]
        slots = some[(age >= seconds) | (age < 0)]
        return [source for slot in slots.tolist() if (source := self._sources[slot]) is not None]

    def _grow(self) -> None:
        more = len(self._sources)
        self.encoded = np.concatenate([self.encoded, np.empty_like(self.encoded)])
        self.fingerprints = np.concatenate([self.fingerprints, np.empty_like(self.fingerprints)])
        self.heads = np.concatenate([self.heads, np.zeros_like(self.heads)])
        self.times = np.concatenate([self.times, np.zeros_like(self.times)])
        self.head = self.heads.data
        self._sources += [None] * more
        self._free = list(range(more, 2 * more))[::-1]


class Slot:
    """The slot of one source."""

    __slots__ = ("_gathered", "number")

    def __init__(self, gathered: Gathered, number: int) -> None:
        self._gathered = gathered
        self.number = number
        """NOTHING once it was freed."""

    def admit(self, due: int, until_look: int, room: int, rank: int) -> None:
        """Accept batches from now on: from number `due` on, and fewer than `until_look`.

        They must take less than `room` bytes, and give the data-parallel rank `rank`. The slot must be empty.
        """
        number = self.number
        if number != NOTHING:
            head = self._gathered.head
            head[number, DUE] = due
            head[number, UNTIL_LOOK] = until_look
            head[number, ROOM] = min(room, SLOT_BYTES)
            head[number, RANK] = rank

    def take(self) -> Waiting | None:
        """Remove and return what the slot holds; None if it is empty."""
        number, gathered = self.number, self._gathered
        if number == NOTHING or not (count := gathered.head[number, COUNT]):
            return None
        due, _, _, _, used, engine_events, payload_bytes, skipped, _ = gathered.heads[number].tolist()
        since, until, published_at, seconds = gathered.times[number].tolist()
        head = gathered.head
        head[number, ROOM] -= used
        head[number, COUNT] = head[number, USED] = head[number, ENGINE_EVENTS] = head[number, SIZE] = 0
        head[number, SKIPPED] = 0
        gathered.times[number, SECONDS] = 0.0
        return Waiting(
            gathered.encoded[number, :used].tobytes(),
            range(due - count, due),
            gathered.fingerprints[number, :count].tolist(),
            engine_events,
            skipped,
            payload_bytes,
            since,
            until,
            published_at,
            seconds,
        )
