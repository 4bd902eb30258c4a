"""Decode a batch event by event, so that a bad event costs itself and its reason is known.

This is the path that defines what a payload means. It is several times slower than decoding a whole
batch at once, which `connectors.normalise` tries first.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec import DecodeError, Raw
from msgspec.msgpack import Decoder

from connectors.envelope import open_envelope
from connectors.eras import StreamEra, is_map
from connectors.errors import EventError
from connectors.hashes import pack_hash, pack_hashes
from connectors.media import canonical_medium
from connectors.wire import (
    ABSENT,
    ALL_BLOCKS_CLEARED,
    BLOCK_REMOVED,
    BLOCK_STORED,
    MAX_BLOCK_SIZE,
    MAX_GROUP_IDX,
    REMOVED_REQUIRED,
    STORED_REQUIRED,
    EventMap,
)
from schemas.events import Batch, Cleared, Event, Removed, Stored, Undecodable
from schemas.reasons import UndecodableReason

T = TypeVar("T")

_EVENT_MAP = Decoder(EventMap)
_ARRAY = Decoder(list[Raw])
_TEXT = Decoder(str)
_OPTIONAL_TEXT = Decoder(str | None)
_INTEGER = Decoder(int)
_OPTIONAL_INTEGER = Decoder(int | None)
_HASHES = Decoder(list[int | bytes])
_PARENT = Decoder(int | bytes | None)
_LORA_ID = Decoder(int | str | None)

_NIL = Raw(b"\xc0")


def decode_batch(
    payload: bytes, *, seq: int, received_at: float, replayed: bool, forward_session_ids: bool, era: StreamEra
) -> Batch:
    """Return the batch in `payload`; events that cannot be understood are Undecodable in their places.

    Adjacent removals of one medium and group become one, adjacent Undecodables of one reason too.
    A timestamp that is no finite number is replaced by `received_at` and reported before the events.
    Raises FrameError when there are no events to be found.
    """
    ts, raw_events = open_envelope(payload)
    events: list[Event] = []
    if ts is None:
        ts = received_at
        events.append(Undecodable("bad_timestamp", seq))
    run: list[bytes] = []
    for raw in raw_events:
        try:
            event = _event(raw, forward_session_ids, era)
        except EventError as rejected:
            event = Undecodable(rejected.reason, seq)
        last = events[-1] if events else None
        if isinstance(event, Removed):
            if isinstance(last, Removed) and _of_one_place(last, event):
                run.append(event.hashes)
                continue
        elif isinstance(event, Undecodable) and isinstance(last, Undecodable) and last.reason == event.reason:
            last.count += 1
            continue
        _complete(last, run)
        run = [event.hashes] if isinstance(event, Removed) else []
        events.append(event)
    _complete(events[-1] if events else None, run)
    return Batch(seq, ts, received_at, events, len(raw_events), replayed)


def _of_one_place(one: Removed, other: Removed) -> bool:
    return (
        one.group_idx == other.group_idx and one.medium == other.medium and one.raw_medium == other.raw_medium
    )


def _complete(last: Event | None, run: list[bytes]) -> None:
    """Give a Removed the hashes of the run it stands for, joined once: runs can be long."""
    if isinstance(last, Removed) and len(run) > 1:
        last.hashes = b"".join(run)


def _event(raw: Raw, forward_session_ids: bool, era: StreamEra) -> Event:
    first = memoryview(raw)[0]
    if first & 0xF0 == 0x90 or first in (0xDC, 0xDD):
        elements = _decode(_ARRAY, raw, "bad_field_type")
        kind = _kind(elements[0] if elements else ABSENT)
        fields = _named(elements, kind)
        return _typed_event(kind, fields, len(elements), forward_session_ids, era)
    if is_map(raw):
        fields = _decode(_EVENT_MAP, raw, "bad_field_type")
        return _typed_event(_kind(fields.type), fields, None, forward_session_ids, era)
    raise EventError("missing_type")


def _kind(raw: Raw) -> str:
    if raw == ABSENT:
        raise EventError("missing_type")
    kind = _decode(_TEXT, raw, "type_not_string")
    if kind not in (BLOCK_STORED, BLOCK_REMOVED, ALL_BLOCKS_CLEARED):
        raise EventError("unknown_type")
    return kind


def _named(elements: list[Raw], kind: str) -> EventMap:
    """Give an array's elements their names; positions beyond the known ones are ignored."""
    given = len(elements)

    def at(position: int) -> Raw:
        return elements[position] if position < given else ABSENT

    if kind == BLOCK_STORED:
        if given < STORED_REQUIRED:
            raise EventError("truncated_tuple")
        return EventMap(
            block_hashes=elements[1],
            parent_block_hash=elements[2],
            block_size=elements[4],
            lora_id=at(5),
            medium=at(6),
            lora_name=at(7),
            group_idx=at(9),
            kv_cache_spec_kind=at(10),
            kv_cache_spec_sliding_window=at(11),
        )
    if kind == BLOCK_REMOVED:
        if given < REMOVED_REQUIRED:
            raise EventError("truncated_tuple")
        return EventMap(block_hashes=elements[1], medium=at(2), group_idx=at(3))
    return EventMap()


def _typed_event(
    kind: str, fields: EventMap, length: int | None, forward_session_ids: bool, era: StreamEra
) -> Event:
    if kind == ALL_BLOCKS_CLEARED:
        return Cleared()
    if fields.block_hashes == ABSENT:
        raise EventError("missing_field")
    hashes = _hashes(fields.block_hashes)
    packed = pack_hashes(hashes)
    medium, raw_medium = canonical_medium(_decode(_OPTIONAL_TEXT, _given(fields.medium), "bad_medium"))
    group_idx = _group_idx(fields.group_idx)
    if kind == BLOCK_REMOVED:
        era.saw_removed(length, hashes, medium, raw_medium)
        return Removed(packed, medium, raw_medium, group_idx)
    block_size = _block_size(fields.block_size)
    stored = Stored(
        packed,
        block_size,
        len(hashes) * block_size,
        _parent(fields.parent_block_hash),
        medium,
        raw_medium,
        group_idx,
        _decode(_OPTIONAL_TEXT, _given(fields.kv_cache_spec_kind), "bad_field_type"),
        _decode(_OPTIONAL_INTEGER, _given(fields.kv_cache_spec_sliding_window), "bad_field_type"),
        _lora(fields, length),
        _session(fields.session_id) if forward_session_ids else None,
    )
    era.saw_stored(fields, length, hashes, medium, raw_medium)
    return stored


def _given(raw: Raw) -> Raw:
    return _NIL if raw == ABSENT else raw


def _decode(decoder: Decoder[T], raw: Raw, reason: UndecodableReason) -> T:
    try:
        return decoder.decode(raw)
    except UnicodeDecodeError:
        raise EventError("invalid_utf8") from None
    except (DecodeError, RecursionError):
        raise EventError(reason) from None


def _hashes(raw: Raw) -> list[int | bytes]:
    try:
        return _HASHES.decode(raw)
    except (DecodeError, RecursionError):
        if _NIL in _decode(_ARRAY, raw, "bad_block_hashes"):
            raise EventError("nil_hash") from None
        raise EventError("bad_hash_type") from None


def _parent(raw: Raw) -> bytes | None:
    parent = _decode(_PARENT, _given(raw), "bad_parent_hash")
    try:
        return None if parent is None else pack_hash(parent)
    except EventError:
        raise EventError("bad_parent_hash") from None


def _block_size(raw: Raw) -> int:
    if raw == ABSENT:
        raise EventError("missing_field")
    block_size: int = _decode(_INTEGER, raw, "bad_block_size")
    if not 0 <= block_size <= MAX_BLOCK_SIZE:
        raise EventError("bad_block_size")
    return block_size


def _group_idx(raw: Raw) -> int:
    group_idx: int | None = _decode(_OPTIONAL_INTEGER, _given(raw), "bad_group")
    if group_idx is None:
        return 0
    if not 0 <= group_idx <= MAX_GROUP_IDX:
        raise EventError("bad_group")
    return group_idx


def _lora(fields: EventMap, length: int | None) -> str | None:
    """Return the adapter's name, or its number where the engine gives no name."""
    name = _given(fields.lora_name)
    if length is not None and is_map(name):  # SGLang 0.5.18 has metadata at this position
        name = _NIL
    lora_name: str | None = _decode(_OPTIONAL_TEXT, name, "bad_field_type")
    lora_id = _decode(_LORA_ID, _given(fields.lora_id), "bad_field_type")
    if lora_name is None and lora_id is not None:
        return str(lora_id)
    return lora_name


def _session(raw: Raw) -> str | None:
    session: str | None = _decode(_OPTIONAL_TEXT, _given(raw), "bad_field_type")
    return session
