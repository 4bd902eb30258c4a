"""Payloads through stream, record and worker, which applies whatever becomes of them."""

from __future__ import annotations

import random
from collections import Counter

from connectors.frames.bundle import Bundle
from connectors.order.stream import SourceStream
from connectors.publish.encoding import RecordEncoding
from connectors.sources import Source
from pipeline.kafka.decoding import decode_events
from pipeline.residency.partition import PartitionState
from schemas.events import EventsRecord
from schemas.settings import Connector, Kafka, Worker
from tests.fuzz.table_columns import TableColumns

NOW = 1_800_000_000.0
SHARDS = 4
PAYLOADS_A_LIFE = 500
"""After so many a new worker begins, so that what the state remembers stays small."""
PAYLOADS_A_CUT = 100


class WholeWay:
    """One source's way into the tables. Its messages come in bundles, as the receiver gives them."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self._columns = TableColumns()
        self._encodings = [RecordEncoding(Kafka(record_format=name)) for name in ("msgpack", "json")]
        self._begin()

    def _begin(self) -> None:
        self._now = NOW
        self._stream = SourceStream(
            Source("replica", 0, "m", "t", "m/s/t", "tcp://engine:1"), Connector(), lambda: self._now
        )
        self._partition = PartitionState(0, Worker(), shards=SHARDS)
        self._offset = self._seq = self._fed = 0
        self._waiting: list[tuple[bytes, bytes, bytes]] = []

    def take(self, payload: bytes, rng: random.Random) -> None:
        """Raises whatever keeps a record from the tables."""
        self._waiting.append((b"", self._seq.to_bytes(8, "big"), payload))
        self._seq += rng.choice((1, 1, 1, 1, 1, 1, 1, 2, 0))
        self._fed += 1
        if rng.random() < 0.2:
            self._feed(rng)
        if self._fed % PAYLOADS_A_CUT == 0:
            self._cut(rng)
        if self._fed == PAYLOADS_A_LIFE:
            self._begin()

    def finish(self, rng: random.Random) -> None:
        """Take what waits."""
        self._cut(rng)

    def _feed(self, rng: random.Random) -> None:
        messages, self._waiting = self._waiting, []
        self._now += 0.3
        # Compiled code takes a bundle, the other decoders take anything else.
        together = Bundle.of(messages) if rng.random() < 0.5 else messages
        for record in self._stream.feed_all(together, self._now):
            self._apply(record, rng)

    def _apply(self, record: EventsRecord, rng: random.Random) -> None:
        # What scanned batches are packed into can be no JSON.
        encoding = self._encodings[type(record) is EventsRecord and rng.random() < 0.2]
        value = encoding.value(record)
        self._partition.apply(self._offset, decode_events(value, encoding.headers_of(record)))
        self._offset += 1
        self.outcomes["records"] += 1

    def _cut(self, rng: random.Random) -> None:
        self._feed(rng)
        for record in self._stream.flush():
            self._apply(record, rng)
        cut = self._partition.cut(self._now)
        self._columns.check(cut.rows)
        self.outcomes["rows"] += len(cut.rows)
