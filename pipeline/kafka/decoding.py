"""Kafka record values to structs, by their `content-type` header."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from connectors.kafka.content_types import JSON
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord

_from_msgpack = msgspec.msgpack.Decoder(EventsRecord)
_from_json = msgspec.json.Decoder(EventsRecord)
_residency_from_msgpack = msgspec.msgpack.Decoder(ResidencyRecord)


class RecordUndecodable(Exception):
    """A record's value is not what its header says."""


def decode_events(value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> EventsRecord:
    """Return the record; MessagePack unless the header says JSON. Raises RecordUndecodable."""
    if value is None:
        raise RecordUndecodable("no value")
    try:
        for name, content in headers:
            if name == "content-type" and content == JSON:
                return _from_json.decode(value)
        return _from_msgpack.decode(value)
    except msgspec.DecodeError as error:
        raise RecordUndecodable(str(error)) from error


def decode_residency(value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> ResidencyRecord:
    """Return the record. Raises RecordUndecodable."""
    if value is None:
        raise RecordUndecodable("no value")
    try:
        return _residency_from_msgpack.decode(value)
    except msgspec.DecodeError as error:
        raise RecordUndecodable(str(error)) from error
