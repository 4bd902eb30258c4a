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
"""Encoded batches that a source may have here; with more its stream takes them."""
SLOT_BATCHES = 16
FIRST_SLOTS = 64
DUE, UNTIL_LOOK, ROOM, COUNT, USED, ENGINE_EVENTS, SIZE, SKIPPED, RANK = range(9)
"""Of a slot: the number that is due, -1 where no batch may come here; batches until one has to be looked at;
bytes that would be too much; then of what is here batches, their bytes, engine events, bytes of payload, and
events that were skipped; last the rank that batches have to say."""
HEADS = 9
SINCE, UNTIL, PUBLISHED, SECONDS = range(4)
"""Of a slot: when its first and last batch were received, when the engine published the last, all in seconds
since the epoch, and what processor time they took."""
TIMES = 4
NOTHING = -1
"""Number of no batch, and of no slot."""
_NO_HEAD = (NOTHING, *[0] * (HEADS - 1))


class Waiting(NamedTuple):
    """What a stream has to take: batches of consecutive numbers, the first of which is due."""

    encoded: bytes
    """`schemas.events.Batch`es, one behind the other."""
    seqs: range
    fingerprints: list[int]
    engine_events: int
    skipped: int
    """Of these, events that change nothing."""
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
    """A slot for each source: one row of each table."""

    def __init__(self) -> None:
        self.encoded: Bytes = np.empty((FIRST_SLOTS, SLOT_BYTES), np.uint8)
        self.fingerprints: Ints = np.empty((FIRST_SLOTS, SLOT_BATCHES), np.int64)
        self.heads: Ints = np.zeros((FIRST_SLOTS, HEADS), np.int64)
        self.times = np.zeros((FIRST_SLOTS, TIMES), np.float64)
        self.head = self.heads.data
        """Single numbers are read and written faster this way."""
        self._sources: list[SourceKey | None] = [None] * FIRST_SLOTS
        self.numbers: dict[SourceKey, int] = {}
        """Which slot is whose."""
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
        """Take the slot of a source back, and what is in it."""
        if slot.number != NOTHING:
            self.heads[slot.number] = _NO_HEAD
            del self.numbers[cast(SourceKey, self._sources[slot.number])]
            self._sources[slot.number] = None
            self._free.append(slot.number)
            slot.number = NOTHING

    def charge(self, slots: Ints | int, seconds: NDArray[np.floating[Any]] | float) -> None:
        """Count processor time that was spent on what came into a slot, or into several, each named once."""
        self.times[slots, SECONDS] += seconds

    def due(self, now: float, seconds: float) -> list[SourceKey]:
        """Return the sources whose first batch is so old; one that is newer than now, too."""
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
    """The place of one source."""

    __slots__ = ("_gathered", "number")

    def __init__(self, gathered: Gathered, number: int) -> None:
        self._gathered = gathered
        self.number = number
        """NOTHING when it was taken back."""

    def admit(self, due: int, until_look: int, room: int, rank: int) -> None:
        """Let batches come from now on: the first is number `due`, and they are fewer than `until_look`.

        They take less than `room` bytes, and say the data-parallel rank `rank`. Nothing may be here.
        """
        number = self.number
        if number != NOTHING:
            head = self._gathered.head
            head[number, DUE] = due
            head[number, UNTIL_LOOK] = until_look
            head[number, ROOM] = min(room, SLOT_BYTES)
            head[number, RANK] = rank

    def take(self) -> Waiting | None:
        """Remove and return what is here; None where nothing is."""
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
