"""Bytes to records: MessagePack unless the header says JSON. No IO."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, get_args

import msgspec

from kvlens_reader.records.choices import ChoiceRecord
from kvlens_reader.records.events import Batch, Event, EventsRecord
from kvlens_reader.records.figures import FIGURES, TABLE_FIELD
from kvlens_reader.records.json_form import from_json, packed
from kvlens_reader.records.residency import ResidencyRecord
from kvlens_reader.records.wire_prefix import json_decoder, unprefixed

Headers = Iterable[tuple[str, "bytes | None"]]
"""As Python's clients give them; None where there are none."""
Record = EventsRecord | ResidencyRecord | ChoiceRecord | msgspec.Struct

_JSON = b"application/json"


class NotARecord(ValueError):
    """Bytes that are no record of the topic; `cause` says why."""

    def __init__(self, topic: str, cause: str) -> None:
        super().__init__(f"not a record of {topic}: {cause}")
        self.topic = topic
        self.cause = cause


class _Tagged(msgspec.Struct):
    type: str


class _LooseBatch(msgspec.Struct, array_like=True):
    """A batch whose events are looked at one by one."""

    seq: int | None
    ts: float
    received_at: float
    events: list[msgspec.Raw]
    engine_events: int = 0
    replayed: bool = False


class _LooseRecord(EventsRecord):
    batches: list[_LooseBatch]  # type: ignore[assignment]


class WithUnknown(EventsRecord):
    """A record of a newer writer, without the events of types that this version does not know."""

    unknown: tuple[str, ...] = ()
    """Their types."""


_KNOWN = {kind.__struct_config__.tag for kind in get_args(Event)}

_records = {
    kind: msgspec.msgpack.Decoder(kind).decode for kind in (EventsRecord, ResidencyRecord, ChoiceRecord)
}
_loose = msgspec.msgpack.Decoder(_LooseRecord).decode
_event, _tagged = msgspec.msgpack.Decoder(Event).decode, msgspec.msgpack.Decoder(_Tagged).decode
_table_of = json_decoder(msgspec.defstruct("Tabled", [(TABLE_FIELD, str)]))
_figures = {kind.TABLE: json_decoder(figure) for kind, figure in FIGURES.items()}  # type: ignore[attr-defined]


def topic_of(name: str) -> str:
    """Return which topic of kvlens a name is, without its prefix: `events.v1` of `prod.events.v1`.

    Raises NotARecord for the name of another topic.
    """
    for topic in _DECODERS:
        if name == topic or name.endswith(f".{topic}"):
            return topic
    raise NotARecord(name, f"the topics are {', '.join(_DECODERS)}")


def decode(topic: str, value: bytes | None, headers: Headers | None = None) -> Any:
    """Return the record of a message; None for a figure of a table that this version does not know.

    `topic`: its name in the cluster. Raises NotARecord.
    """
    which = topic_of(topic)
    is_json = any(name == "content-type" and content == _JSON for name, content in headers or ())
    if value is None:
        raise NotARecord(topic, "it has no value")
    try:
        return _DECODERS[which](value, is_json=is_json)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotARecord(topic, str(error)) from error


def unknown_events(record: EventsRecord) -> Sequence[str]:
    """Return the types of events that `decode` left out of a record, each as often as it came."""
    return record.unknown if isinstance(record, WithUnknown) else ()


def _events(value: bytes, *, is_json: bool) -> EventsRecord:
    try:
        record: EventsRecord = _record(value, kind=EventsRecord, is_json=is_json)
        return record
    except msgspec.ValidationError:
        return _without_unknown_json(value) if is_json else _without_unknown(value)


def _without_unknown(value: bytes) -> EventsRecord:
    loose = _loose(value)
    unknown: list[str] = []
    batches = []
    for batch in loose.batches:
        tags = [_tagged(raw).type for raw in batch.events]
        unknown += [tag for tag in tags if tag not in _KNOWN]
        events = [_event(raw) for raw, tag in zip(batch.events, tags, strict=True) if tag in _KNOWN]
        batches.append(
            Batch(batch.seq, batch.ts, batch.received_at, events, batch.engine_events, batch.replayed)
        )
    fields = {name: getattr(loose, name) for name in EventsRecord.__struct_fields__} | {"batches": batches}
    return WithUnknown(**fields, unknown=tuple(unknown))


def _without_unknown_json(value: bytes) -> EventsRecord:
    plain = packed(msgspec.json.decode(unprefixed(value)))
    unknown: list[str] = []
    for batch in plain.get("batches", ()):
        tags = [str(event.get("type")) for event in batch[3]]
        unknown += [tag for tag in tags if tag not in _KNOWN]
        batch[3] = [event for event, tag in zip(batch[3], tags, strict=True) if tag in _KNOWN]
    record = msgspec.convert(plain, WithUnknown, builtin_types=(bytes,))
    record.unknown = tuple(unknown)
    return record


def _record(value: bytes, *, kind: Any, is_json: bool) -> Any:
    return from_json(value, kind) if is_json else _records[kind](value)


def _figure(value: bytes, *, is_json: bool) -> Any:
    figure = _figures.get(getattr(_table_of(value), TABLE_FIELD))
    return None if figure is None else figure(value)


_DECODERS: dict[str, Callable[..., Any]] = {
    "events.v1": _events,
    "residency.v1": partial(_record, kind=ResidencyRecord),
    "choices.v1": partial(_record, kind=ChoiceRecord),
    "figures.v1": _figure,
}
