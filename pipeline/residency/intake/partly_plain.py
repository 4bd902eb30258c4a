"""Records of which most batches are plain, in parts: runs of those, and what is between them, decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from connectors.kafka.content_types import UNDECODABLE
from pipeline.residency.intake.joining import joined
from pipeline.residency.intake.plain_runs import EncodedRun, PlainChunk, PlainRun, decoded_with, scanned
from pipeline.residency.windows import bounded_by_log
from schemas.events import Batch, EventsRecord
from schemas.settings import Worker

WORTH_BYTES = 4096
"""Of its batches, that a record must have: a short one is decoded in less time than it is taken apart."""
_A_LIST_OF_ONE = b"\x91"
Rows = npt.NDArray[Any]
"""Of `scan.RUN`."""


class PartlyPlain(NamedTuple):
    """A record without notices, of batches that follow each other; it is applied as its parts in order."""

    record: EncodedRun
    parts: list[PlainRun | EventsRecord]
    received_at: float
    """Of its last batch."""


class Place(NamedTuple):
    """Where a record was found that is not plain."""

    at: int
    """Among those that came together."""
    offset: int
    record: EncodedRun | None
    written: float
    """When the log had it, in seconds since the epoch, 0 or less where it does not know."""


class _Taken(NamedTuple):
    """A record taken apart into its batches."""

    place: Place
    record: EncodedRun
    batches: list[msgspec.Raw]

    @property
    def record_without_duplicates(self) -> EncodedRun:
        """Return what the parts behind the first one say: duplicates are counted once."""
        return replace(self.record, duplicates=0)


def in_parts(places: Sequence[Place], settings: Worker) -> list[tuple[int, PartlyPlain]]:
    """Return those records that can be read in parts, with their places."""
    several = [taken for place in places if (taken := _taken(place)) is not None]
    if not several:
        return []
    batches = [*chain.from_iterable(taken.batches for taken in several)]
    counts = [len(taken.batches) for taken in several]
    rows, chunk = scanned(
        chain.from_iterable((_A_LIST_OF_ONE, batch) for batch in batches),
        [len(_A_LIST_OF_ONE) + len(memoryview(batch)) for batch in batches],
        np.repeat([taken.place.written for taken in several], counts),
        settings,
    )
    found = []
    end = 0
    for taken, count in zip(several, counts, strict=True):
        begin, end = end, end + count
        partly = _partly(taken, rows[begin:end], chunk, settings)
        if partly is not None:
            found.append((taken.place.at, partly))
    return found


def _taken(place: Place) -> _Taken | None:
    record = place.record
    if record is None or len(memoryview(record.batches)) < WORTH_BYTES:
        return None
    try:
        return _Taken(place, record, _decode_raw(record.batches))
    except UNDECODABLE:
        return None


def _partly(taken: _Taken, rows: Rows, chunk: PlainChunk, settings: Worker) -> PartlyPlain | None:
    """Return the record in parts, of which `rows` say what each batch is.

    None if that is worth nothing, or if anything is not as it should be: then the record is decoded as a
    whole, and what is wrong is found there.
    """
    odd = np.flatnonzero(rows["batches"] == 0).tolist()
    if 2 * len(odd) >= len(rows):
        return None
    try:
        decoded = {at: _decode_batch(taken.batches[at]) for at in odd}
    except UNDECODABLE:
        return None
    sequence: list[int | None] = rows["first_seq"].tolist()
    for at, batch in decoded.items():
        sequence[at] = batch.seq
    first = sequence[0]
    if first is None or sequence != [*range(first, first + len(rows))]:
        return None
    parts = [*_parts(taken, rows, chunk, decoded, settings)]
    last = parts[-1]
    received_at = last.received_at if isinstance(last, PlainRun) else last.batches[-1].received_at
    return PartlyPlain(taken.record, parts, received_at)


def _parts(
    taken: _Taken, rows: Rows, chunk: PlainChunk, decoded: dict[int, Batch], settings: Worker
) -> Iterator[PlainRun | EventsRecord]:
    goes_on = np.ones(len(rows), np.bool_)
    goes_on[0] = False
    whole, places = joined(rows, goes_on)
    record = taken.record
    done = 0
    for number, (begin, end) in enumerate([*places.tolist(), [len(rows), len(rows)]]):
        if done < begin:
            between = decoded_with(record, [decoded[at] for at in range(done, begin)])
            yield bounded_by_log(between, taken.place.written, ahead=settings.max_clock_ahead_seconds)
            record = taken.record_without_duplicates
        if begin < end:
            of_run = replace(record, batches=msgspec.Raw(_encode(taken.batches[begin:end])))
            row = whole[number : number + 1]
            yield PlainRun([of_run], np.array([taken.place.offset]), chunk, row, *row.tolist()[0])
            record = taken.record_without_duplicates
        done = end


_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_batch = msgspec.msgpack.Decoder(Batch).decode
_encode = msgspec.msgpack.Encoder().encode
