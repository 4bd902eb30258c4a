"""Records in parts, however short they are."""

from __future__ import annotations

import msgspec
import pytest

from pipeline.reading import partly_plain
from pipeline.reading.numbered import Readable
from pipeline.reading.records import read
from schemas.events import EventsRecord
from schemas.settings import Worker


def read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every record be read in parts that can be."""
    monkeypatch.setattr(partly_plain, "WORTH_BYTES", 0)
    monkeypatch.setattr(partly_plain, "LEAST_BATCHES_A_RUN", 0)


def as_read(offset: int, record: EventsRecord) -> Readable:
    """Return the record at an offset as it is read by itself: a run, in parts, or decoded."""
    reading = read([msgspec.msgpack.encode(record)], Worker(), offsets=[offset])
    return next(iter([*reading.runs, *(partly for _, partly in reading.partly)]), record)
