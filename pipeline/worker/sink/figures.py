"""Rows as records of the figures topic (`schemas.figures`). No IO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from connectors.kafka.cloud_events import CloudEvents, digest
from connectors.kafka.encoding import JSON, Prefixes
from connectors.kafka.topics import partition_of, topic_name
from pipeline.worker.checkpoint.record import Record
from schemas.figures import FIGURES, TABLE_FIELD, time_of
from schemas.rows import Row
from schemas.settings import Kafka

_encode = msgspec.json.Encoder().encode
_BEGINNINGS = {kind: f'{{"{TABLE_FIELD}":"{kind.TABLE}",'.encode() for kind in FIGURES}  # type: ignore[attr-defined]
"""How the JSON object of a row begins; the rest is its struct as encoded, so no row is copied."""


class Figures:
    """Turns rows into records; those of a replica are in one partition, in the order of the rows."""

    def __init__(self, kafka: Kafka, partitions: int, prefixes: Prefixes | None = None) -> None:
        """`partitions`: how many the figures topic has; `prefixes`: of schemas in a registry."""
        self._prefixes = {
            kind: (prefixes or {}).get(figure.__name__, b"") for kind, figure in FIGURES.items()
        }
        self._topic = topic_name(kafka, "figures")
        self._partitions = partitions
        self._events = CloudEvents("figures", JSON)

    def records(self, rows: Iterable[Row]) -> Iterator[Record]:
        """Yield a record for each row of a replica at a time; other rows are no figures."""
        for row in rows:
            beginning = _BEGINNINGS.get(type(row))
            if beginning is None:
                continue
            replica: str = row.replica  # type: ignore[union-attr]
            value = beginning + _encode(row)[1:]
            # A row that is written again is the same event again.
            identity = digest(value)
            yield Record(
                self._topic,
                partition_of(replica, self._partitions),
                replica.encode(),
                self._prefixes[type(row)] + value,
                compressed=True,
                headers=self._events.headers(replica, identity, time_of(row)),
            )
