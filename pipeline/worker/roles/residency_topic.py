"""Records of residency in the configured format."""

from __future__ import annotations

import struct

import msgspec

from connectors.kafka.cloud_events import digest
from connectors.kafka.encoding import Encoding, Prefixes
from connectors.kafka.topics import topic_name
from pipeline.worker.checkpoint.record import Record
from schemas.residency import Decisions, ResidencyRecord
from schemas.settings import Kafka

_decode = msgspec.msgpack.Decoder(ResidencyRecord).decode


class ResidencyTopic:
    """Makes records of residency in the configured format."""

    def __init__(self, kafka: Kafka, prefixes: Prefixes | None = None) -> None:
        """`prefixes`: of schemas in a registry."""
        self.name = topic_name(kafka, "residency")
        self._encoding = Encoding("residency", kafka)
        self._encoding.prefixes = prefixes or {}

    def packed(self, shard: int, key: bytes, value: bytes) -> Record:
        """Return the record for a value in MessagePack."""
        record = _decode(value)
        if self._encoding.as_json:
            value = self._encoding.value(record)
        return self._record(shard, key, value, f"partition {key.decode()}", _time_of(record))

    def decided(self, shard: int, said: Decisions) -> Record:
        """Return the record that sends a shard what another one decided."""
        value = self._encoding.value(ResidencyRecord(said.shard, said.shard, 0, [], decisions=said))
        source = f"shard {said.shard}"
        return self._record(shard, source.encode(), value, source, said.decided_to)

    def _record(self, shard: int, key: bytes, value: bytes, source: str, at: float) -> Record:
        headers = self._encoding.headers(source.replace(" ", "/"), digest(value), at)
        return Record(self.name, shard, key, value, compressed=True, headers=headers)


def _time_of(record: ResidencyRecord) -> float:
    """Return the time up to which its partition is read or, if another record has that, its last change."""
    if record.read_to or not record.sources:
        return record.read_to
    last = (changes.times[-8:] for source in record.sources for changes in source.changes if changes.times)
    return float(max((at for times in last for (at,) in struct.iter_unpack("<d", times)), default=0.0))
