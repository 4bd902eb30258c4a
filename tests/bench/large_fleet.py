"""Engines whose caches are full, each of many blocks: what they hold, and the records that say so."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from schemas.events import Batch, Event, EventsRecord, Opened, Removed, Stored

START = 1_800_000_000.0
CHAIN = 32
"""Blocks of a chain; every second chain is in the cache of another engine as well."""
BLOCKS_A_SECOND = 160
"""That come, and that go, of each engine: 20 batches of eight."""
BLOCKS_A_BATCH = 8
BATCHES_A_RECORD = 2

Exchange = tuple[Event, Event]
"""Blocks that came, and as many that went."""


def hashes_of(chain: int) -> bytes:
    """Return the hashes of a chain, packed."""
    numbers = np.arange(chain * CHAIN + 1, (chain + 1) * CHAIN + 1, dtype=np.uint64)
    mixed = (numbers ^ (numbers >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    packed: bytes = (mixed ^ (mixed >> np.uint64(32))).astype(">u8").tobytes()
    return packed


class LargeEngine:
    """For every chain that comes the oldest one goes."""

    def __init__(self, number: int, blocks: int, engines: int, *, prefix: str = "replica") -> None:
        self.name = f"{prefix}-{number:04}"
        self.blocks = blocks // CHAIN * CHAIN
        self._rng = np.random.default_rng(number)
        self._chains = max(1, engines * blocks // CHAIN // 2)
        self._held: deque[bytes] = deque()
        self._seq = 0
        self._owed = 0.0

    def opened(self) -> Iterator[EventsRecord]:
        """Yield the records of its beginning, in which everything that it holds comes."""
        yield self._record([Batch(None, START, START, [Opened(0, True)])])
        for _ in range(0, self.blocks, 64 * CHAIN):
            room = (self.blocks - len(self._held) * CHAIN) // CHAIN
            chains = [hashes_of(chain) for chain in self._drawn(min(64, room))]
            self._held.extend(chains)
            yield self._record([self._batch(START, [Stored(packed, 16) for packed in chains])])

    def exchanged(self, seconds: float) -> list[Exchange]:
        """Return what came and went in so many seconds, eight blocks at a time."""
        self._owed += seconds * BLOCKS_A_SECOND / CHAIN
        count, self._owed = int(self._owed), self._owed % 1
        exchanges: list[Exchange] = []
        for chain in self._drawn(count):
            came, gone = hashes_of(chain), self._held.popleft()
            self._held.append(came)
            parent = None
            for begin in range(0, len(came), 8 * BLOCKS_A_BATCH):
                end = begin + 8 * BLOCKS_A_BATCH
                exchanges.append((Stored(came[begin:end], 16, parent=parent), Removed(gone[begin:end])))
                parent = came[end - 8 : end]
        return exchanges

    def little_records(self, exchanges: Sequence[Exchange], at: float) -> Iterator[EventsRecord]:
        """Yield them as a connector publishes them: two batches a record."""
        for begin in range(0, len(exchanges), BATCHES_A_RECORD):
            some = exchanges[begin : begin + BATCHES_A_RECORD]
            yield self._record([self._batch(at, list(exchange)) for exchange in some])

    def large_record(self, exchanges: Sequence[Exchange], at: float) -> EventsRecord:
        """Return them as one batch."""
        return self._record([self._batch(at, [event for exchange in exchanges for event in exchange])])

    def _batch(self, at: float, events: list[Event]) -> Batch:
        self._seq += 1
        return Batch(self._seq - 1, at, at, events)

    def _record(self, batches: list[Batch]) -> EventsRecord:
        return EventsRecord(self.name, "model", "model/x/default", 0, 1, batches)

    def _drawn(self, count: int) -> list[int]:
        drawn: list[int] = self._rng.integers(0, self._chains, count).tolist()
        return drawn
