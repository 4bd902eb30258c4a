"""Records most of whose batches are plain, in parts: runs of those, and what is between them, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from connectors.kafka.encoding import UNDECODABLE
from connectors.process.array_length import array_length
from pipeline.reading.joining import Runs, joined
from pipeline.reading.plain_runs import EncodedRun, PlainChunk, PlainRun, decoded_with, scanned
from pipeline.reading.windows import bounded_by_log
from schemas.events import Batch, EventsRecord
from schemas.settings import Worker

WORTH_BYTES = 4096
"""Decoding fewer bytes of batches takes less time than taking them apart."""
LEAST_BATCHES_A_RUN = 16
"""Of all batches of a record, for each run: with fewer, parts cost more than decoding does."""
_LEAST_BYTES_A_BATCH = 10
"""A plain one has twice as many, and more than half of the batches must be plain."""
_A_LIST_OF_ONE = b"\x91"
_NIL = b"\xc0"


class PartlyPlain(NamedTuple):
    """A record of consecutive batches without notices; its parts are applied in order."""

    record: EncodedRun
    parts: list[PlainRun | EventsRecord]
    received_at: float
    """Of its last batch."""


class Place(NamedTuple):
    """A record that is not plain, and where it was found."""

    at: int
    """Its place among those that came together."""
    offset: int
    record: EncodedRun
    written: float
    """The log's time of it, in seconds since the epoch, 0 or less where it has none."""


class _Taken(NamedTuple):
    """A record taken apart into its batches."""

    place: Place
    batches: list[msgspec.Raw]


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
    if not _may_be_worth_it(place.record.batches):
        return None
    try:
        batches = _decode_raw(place.record.batches)
    except UNDECODABLE:
        return None
    # The number of a notice is nil, after the head of its array.
    if any(memoryview(batch)[1:2] == _NIL for batch in batches):
        return None
    return _Taken(place, batches)


def _may_be_worth_it(batches: msgspec.Raw) -> bool:
    """Return whether a list of batches is long enough, and has no more elements than its bytes allow.

    Each element takes far more memory than a byte, whatever it is.
    """
    size = len(memoryview(batches))
    return size >= WORTH_BYTES and 0 < array_length(batches) * _LEAST_BYTES_A_BATCH <= size


def _partly(taken: _Taken, rows: Runs, chunk: PlainChunk, settings: Worker) -> PartlyPlain | None:
    """Return the record in parts; `rows` describe each batch.

    None if that is not worth it, or if anything is not as it should be: then the record is decoded as a
    whole, which finds what is wrong.
    """
    goes_on = np.ones(len(rows), np.bool_)
    goes_on[0] = False
    runs, spans = joined(rows, goes_on)
    odd = np.flatnonzero(rows["batches"] == 0).tolist()
    if len(runs) * LEAST_BATCHES_A_RUN > len(rows) or 2 * len(odd) >= len(rows):
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
    parts: list[PlainRun | EventsRecord] = []
    # Duplicates are counted once, with the first part.
    record = taken.place.record
    said, said_later = record, replace(record, duplicates=0)
    done = 0
    for number, (begin, end) in enumerate([*spans.tolist(), [len(rows), len(rows)]]):
        if done < begin:
            between = decoded_with(said, [decoded[at] for at in range(done, begin)])
            ahead = settings.max_clock_ahead_seconds
            parts.append(bounded_by_log(between, taken.place.written, ahead=ahead))
            said = said_later
        if begin < end:
            of_run = replace(said, batches=msgspec.Raw(_encode(taken.batches[begin:end])))
            row = runs[number : number + 1]
            offsets = np.array([taken.place.offset])
            parts.append(PlainRun([of_run], offsets, chunk, row, *row.tolist()[0]))
            said = said_later
        done = end
    last = parts[-1]
    received_at = last.received_at if isinstance(last, PlainRun) else last.batches[-1].received_at
    return PartlyPlain(record, parts, received_at)


_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_batch = msgspec.msgpack.Decoder(Batch).decode
_encode = msgspec.msgpack.Encoder().encode
