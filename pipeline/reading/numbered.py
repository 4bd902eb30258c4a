"""Records with their offsets, read as runs or decoded."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from pipeline.reading.partly_plain import PartlyPlain
from pipeline.reading.plain_runs import PlainRun
from schemas.events import EventsRecord

Readable = EventsRecord | PlainRun | PartlyPlain
"""A record as it was decoded, or in parts; or a run of several."""
Numbered = tuple[int, Readable]
"""A record and its offset; or a run, which knows the offsets of all its records, and the first of them."""


def one_by_one(records: Sequence[Numbered]) -> list[Numbered]:
    """Return the records in the order of the log, each run split into one for each of its records."""
    found: list[Numbered] = []
    for offset, record in records:
        if isinstance(record, PlainRun):
            found += [
                (at, record.part(number, number + 1)) for number, at in enumerate(record.offsets.tolist())
            ]
        else:
            found.append((offset, record))
    return sorted(found, key=itemgetter(0))


def said_by(record: Readable) -> EventsRecord:
    """Return what a record, or the last one of a run, states apart from its batches."""
    return record if isinstance(record, EventsRecord) else record.record


def last_offset(numbered: Numbered) -> int:
    """Return the offset of the last record."""
    offset, record = numbered
    return int(record.offsets[-1]) if isinstance(record, PlainRun) else offset


def between(numbered: Numbered, start: int, end: float) -> Numbered | None:
    """Return the record if its offset is from `start` to before `end`; of a run those records, if any."""
    offset, record = numbered
    if not isinstance(record, PlainRun):
        return numbered if start <= offset < end else None
    first, last = np.searchsorted(record.offsets, [start, end]).tolist()
    if (first, last) == (0, len(record.offsets)):
        return numbered
    return (int(record.offsets[first]), record.part(first, last)) if first < last else None
