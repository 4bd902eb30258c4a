"""Decodes Kafka record values to structs, by their `content-type` header."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec

from connectors.kafka.encoding import JSON, UNDECODABLE
from pipeline.kafka.refusal import RecordRefused, SourceName
from schemas.choices import ChoiceRecord
from schemas.events import DpRank, EventsRecord, Name
from schemas.json_form import from_json
from schemas.reasons import SetAsideReason
from schemas.residency import ResidencyRecord
from schemas.wire_prefix import json_decoder

Headers = Iterable[tuple[str, bytes]]


class _Named(msgspec.Struct):
    """A source, as an events record and an entry of a residency record name it."""

    replica: Name
    dp_rank: DpRank


class _NamedSources(msgspec.Struct):
    sources: list[_Named]


class Outline(msgspec.Struct, gc=False):
    """The fields of an events record that say where it belongs; its batches are skipped."""

    replica: str
    dp_rank: int
    incarnation: int
    last_seq: int | None = None


_events = msgspec.msgpack.Decoder(EventsRecord).decode, partial(from_json, kind=EventsRecord)
_named = msgspec.msgpack.Decoder(_Named).decode, json_decoder(_Named)
_outline = msgspec.msgpack.Decoder(Outline).decode, json_decoder(Outline)
_choice = msgspec.msgpack.Decoder(ChoiceRecord).decode, partial(from_json, kind=ChoiceRecord)
_residency = msgspec.msgpack.Decoder(ResidencyRecord).decode, partial(from_json, kind=ResidencyRecord)
_named_sources = msgspec.msgpack.Decoder(_NamedSources).decode, json_decoder(_NamedSources)

_Record = TypeVar("_Record")


def decode_events(value: bytes | None, headers: Headers, key: bytes | None = None) -> EventsRecord:
    """Return the record; MessagePack unless the header says JSON. Raises RecordRefused.

    The source of a record that does not decode is still read from its fields, or else from its key.
    """
    form = is_json(headers)
    return _decoded(_events[form], value, lambda: _source(_named[form], value, key))


def outline_of(value: bytes | None, headers: Headers) -> Outline | None:
    """Return where an events record belongs; None where that cannot be decoded."""
    try:
        return _outline[is_json(headers)](value or b"")
    except UNDECODABLE:
        return None


def decode_residency(value: bytes | None, headers: Headers, key: bytes | None = None) -> ResidencyRecord:
    """Return the record; MessagePack unless the header says JSON. Raises RecordRefused."""
    form = is_json(headers)
    return _decoded(_residency[form], value, lambda: _sources(_named_sources[form], value))


def decode_choice(value: bytes | None, headers: Headers, key: bytes | None = None) -> ChoiceRecord:
    """Return the record, which names no source; MessagePack unless the header says JSON.

    Raises RecordRefused.
    """
    return _decoded(_choice[is_json(headers)], value, tuple)


def is_json(headers: Headers) -> bool:
    """Return whether a record is JSON; any other is MessagePack."""
    return ("content-type", JSON) in headers


def _decoded(
    decode: Callable[[bytes], _Record], value: bytes | None, named: Callable[[], tuple[SourceName, ...]]
) -> _Record:
    if value is None:
        raise RecordRefused("no_value", "it has no value", named())
    try:
        return decode(value)
    except UNDECODABLE as error:
        raise RecordRefused(_reason(error), str(error), named()) from error


def _reason(error: Exception) -> SetAsideReason:
    if isinstance(error, UnicodeDecodeError):
        return "invalid_utf8"
    if isinstance(error, RecursionError):
        return "too_deep"
    return "not_a_record" if isinstance(error, msgspec.ValidationError) else "malformed"


def _source(
    decode: Callable[[bytes], _Named], value: bytes | None, key: bytes | None
) -> tuple[SourceName, ...]:
    try:
        named = decode(value or b"")
    except UNDECODABLE:
        replica = (key or b"").decode(errors="replace")
        return (SourceName(replica, None),) if replica else ()
    return (SourceName(named.replica, named.dp_rank),)


def _sources(decode: Callable[[bytes], _NamedSources], value: bytes | None) -> tuple[SourceName, ...]:
    try:
        found = decode(value or b"")
    except UNDECODABLE:
        return ()
    return tuple(SourceName(source.replica, source.dp_rank) for source in found.sources)
