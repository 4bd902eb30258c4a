"""Plain runs: batches of stores and removals, read by compiled code, those of many records at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import EVENT, NO_LINKS, EventRows, Events, Hashes
from pipeline.reading.event import NONE
from pipeline.reading.joining import joined
from pipeline.reading.scan import LORA_ROWS, RUN, TABLE_ROWS, Ints, Tables, Times, scan_runs
from schemas.events import Batch, EventsRecord
from schemas.hashes import HASH_BYTES
from schemas.settings import Worker

_EVENT_BYTES = 20
"""No event has fewer."""
_GPU = "gpu"


class EncodedRun(EventsRecord, kw_only=True, omit_defaults=True, gc=False):
    """An events record whose batches are still encoded."""

    batches: msgspec.Raw  # type: ignore[assignment]


class Shape(NamedTuple):
    """A kind of events."""

    pool: tuple[str, int]
    """Medium and group."""
    block_size: int
    """Tokens, or REMOVAL."""
    several: bool
    """Whether stores have several hashes."""


class PlainChunk(NamedTuple):
    """What runs that were read together share."""

    events: EventRows
    hashes: Hashes
    links: Hashes
    """Of the hashes, zeros where they are not known. They mean nothing if no record has any."""
    pools: list[tuple[str, int]]
    """Media and groups, by the `pool` of events."""
    shapes: list[Shape]
    loras: list[str]
    """By the `adapter` of events, from 1."""
    shapes_of: dict[int, list[Shape]]
    """Those that were looked up before, by their bits."""

    def shapes_with(self, bits: int) -> list[Shape]:
        """Return the shapes whose bits are set."""
        found = self.shapes_of.get(bits)
        if found is None:
            found = self.shapes_of[bits] = [self.shapes[number] for number in _numbers(bits)]
        return found


class PlainRun(NamedTuple):
    """Ordinary batches of a source without notices, in sequence order; their events lie in their chunk.

    They are of one record or a part of one, or of several records that continue each other in one window and
    state the same about the source. Times are event times in seconds since the epoch, those of receipt are of
    the connector's clock.
    """

    records: Sequence[EncodedRun]
    """k of them."""
    offsets: Ints
    """(k,)"""
    chunk: PlainChunk
    rows: npt.NDArray[Any]
    """(k,) of RUN: what is known of each record."""
    batches: int
    first_event: int
    first_hash: int
    end: int
    hashes_end: int
    first_seq: int
    last_seq: int
    engine_events: int
    shape_bits: int
    pool_bits: int
    has_loras: int
    has_links: int
    first_time: float
    last_time: float
    time: float
    """Of the last batch, like `received_at`."""
    received_at: float
    latest_receipt: float
    lag: float

    @property
    def record(self) -> EncodedRun:
        """Return the last record."""
        return self.records[-1]

    @property
    def shapes(self) -> list[Shape]:
        """Return the kinds of events that it has."""
        return self.chunk.shapes_with(self.shape_bits)

    def events_by_pool(self) -> list[tuple[tuple[str, int], Events]]:
        """Return the events of each medium and group."""
        chunk = self.chunk
        rows = chunk.events[self.first_event : self.end]
        hashes = chunk.hashes[self.first_hash : self.hashes_end]
        links = chunk.links[self.first_hash : self.hashes_end] if self.has_links else NO_LINKS
        numbers = _numbers(self.pool_bits)
        if len(numbers) == 1:
            return [(chunk.pools[numbers[0]], Events(rows, hashes, links))]
        of_pool = np.repeat(rows["pool"], rows["hashes"])
        return [
            (
                chunk.pools[number],
                Events(
                    rows[rows["pool"] == number],
                    hashes[of_pool == number],
                    links[of_pool == number] if self.has_links else NO_LINKS,
                ),
            )
            for number in numbers
        ]

    @property
    def hash_count(self) -> int:
        """Return how many hashes its events have."""
        return self.hashes_end - self.first_hash

    def part(self, begin: int, end: int) -> PlainRun:
        """Return the run of some of the records, one at least."""
        rows = self.rows[begin:end]
        whole, _ = joined(rows, np.ones(len(rows), np.bool_))
        return PlainRun(
            self.records[begin:end], self.offsets[begin:end], self.chunk, rows, *whole[0].tolist()
        )

    def decoded(self) -> EventsRecord:
        """Return the only record, or the part of it, as the ordinary decoder would."""
        return decoded_with(self.record, _decode_batches(self.record.batches))


def decoded_with(record: EncodedRun, batches: list[Batch]) -> EventsRecord:
    """Return a record with these decoded batches in place of its own."""
    return EventsRecord(**{**msgspec.structs.asdict(record), "batches": batches})


def scanned(
    encoded: Iterable[bytes | msgspec.Raw], sizes: Sequence[int], written: Times, settings: Worker
) -> tuple[npt.NDArray[Any], PlainChunk]:
    """Return a row of RUN for each of n lists of batches; `encoded` holds their bytes, `sizes` how many."""
    packed = np.frombuffer(b"".join(encoded), np.uint8)
    ends: Ints = np.cumsum(sizes, dtype=np.int64)
    runs = np.empty(len(ends), RUN)
    events = np.empty(len(packed) // _EVENT_BYTES + 1, EVENT)
    hashes = np.empty(len(packed) // HASH_BYTES + 1, np.uint64)
    links = np.empty(len(hashes), np.uint64)
    tables = Tables(
        np.empty((TABLE_ROWS, 3), np.int64),
        np.empty((TABLE_ROWS, 3), np.int64),
        np.empty((LORA_ROWS, 2), np.int64),
        np.zeros(3, np.int64),
    )
    scan_runs(
        packed,
        ends,
        written,
        settings.max_clock_ahead_seconds,
        settings.max_clock_behind_seconds,
        runs,
        events,
        hashes,
        links,
        tables,
    )
    return runs, _chunk(packed, events, hashes, links, tables)


def _chunk(packed: Any, events: EventRows, hashes: Hashes, links: Hashes, tables: Tables) -> PlainChunk:
    used_pools, used_shapes, used_loras = tables.used.tolist()

    def text(start: int, size: int) -> str:
        return bytes(packed[start : start + size]).decode()

    pools = [
        (_GPU if size == NONE else text(start, size), group)
        for start, size, group in tables.pools[:used_pools].tolist()
    ]
    shapes = [
        Shape(pools[pool], size, bool(several))
        for pool, size, several in tables.shapes[:used_shapes].tolist()
    ]
    loras = [text(start, size) for start, size in tables.loras[:used_loras].tolist()]
    return PlainChunk(events, hashes, links, pools, shapes, loras, {})


@lru_cache(1024)
def _numbers(bits: int) -> tuple[int, ...]:
    return tuple(number for number in range(TABLE_ROWS) if bits >> number & 1)


_decode_batches = msgspec.msgpack.Decoder(list[Batch]).decode
