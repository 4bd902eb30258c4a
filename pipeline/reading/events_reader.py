"""Reads the events topic, for the replica agent and for the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from connectors.kafka.topics import topic_name
from pipeline.applying.offered import Offered
from pipeline.applying.reader import Ahead, Reader
from pipeline.kafka.acceptance import events_source
from pipeline.kafka.decoding import decode_events, is_json
from pipeline.kafka.refusal import SourceName
from pipeline.reading.numbered import Numbered, Readable, said_by
from pipeline.reading.plain_runs import PlainRun
from pipeline.reading.records import read
from pipeline.reading.windows import bounded_by_log
from schemas.events import EventsRecord
from schemas.settings import Settings


class EventsReader(Reader[Readable]):
    """Reads plain records by compiled code, many as one, and decodes the others."""

    contiguous: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        self.topic = topic_name(settings.kafka, "events")
        self._worker = settings.worker

    def ahead(self, offered: Sequence[Offered]) -> Ahead[Readable]:
        reading = read(
            [None if is_json(one.headers) else one.value for one in offered],
            self._worker,
            offsets=[one.offset for one in offered],
            written=[one.written_at for one in offered],
        )
        records: list[Numbered] = [(int(run.offsets[0]), run) for run in reading.runs]
        records += [(offered[at].offset, partly) for at, partly in reading.partly]
        return Ahead(records, reading.others, reading.unknown if reading.runs else ())

    def decode(self, offered: Offered) -> Readable:
        return decode_events(offered.value, offered.headers, offered.key)

    def sources_of(self, record: Readable) -> tuple[SourceName, ...]:
        return events_source(said_by(record))

    def bounded(self, record: Readable, written_at: float) -> Readable:
        # Whatever reads ahead bounds what it reads.
        if not isinstance(record, EventsRecord):
            return record
        return bounded_by_log(record, written_at, ahead=self._worker.max_clock_ahead_seconds)

    def offsets_of(self, offset: int, record: Readable) -> Sequence[int]:
        return record.offsets.tolist() if isinstance(record, PlainRun) else (offset,)
