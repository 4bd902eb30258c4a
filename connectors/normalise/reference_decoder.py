"""Decode a batch event by event, so that a bad event costs only itself, and its reason is known.

This is the path that defines what a payload means. It is several times slower than decoding a whole
batch at once, which `connectors.normalise.normaliser` tries first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec import DecodeError, Raw, defstruct
from msgspec.msgpack import Decoder

from connectors.engines.catalogue import CATALOGUE, OTHER_TYPE_KEY, TYPE_KEY, Catalogue, EventForm
from connectors.engines.recognition import StreamEra
from connectors.engines.sighting import EMPTY_ARRAY, NIL, Meaning, Sighting, is_map
from connectors.normalise.columns import NO_RANK
from connectors.normalise.envelope import open_envelope
from connectors.normalise.errors import EventError, FrameError, UnknownType
from connectors.normalise.fields import (
    ARRAY,
    OPTIONAL_INTEGER,
    OPTIONAL_TEXT,
    block_size_in,
    decoded,
    group_in,
    hashes_in,
    lora_in,
    owner_in,
    parent_in,
    unpacked,
)
from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.hashes import object_hash, pack_hashes, tenant_group
from connectors.normalise.links import BlockFields
from connectors.normalise.pages import UNFILLED_LENGTH, split, tokens_in_last
from connectors.normalise.salts import salt_name
from connectors.normalise.wire import (
    ABSENT,
    MAX_BATCH_HASHES,
    MAX_ONE_BY_ONE,
    MAX_POSITIONS,
    MAX_WITHOUT_SCANNER,
    STRETCH_EVENTS,
    Text,
)
from connectors.process.array_length import array_length
from schemas.events import OWNED, Batch, Cleared, Event, Removed, Stored, Undecodable
from schemas.hashes import HASH_BYTES

Together = Callable[[Sequence[Raw]], Sequence[Event] | None]
"""Decodes events at once, or gives up."""

_TEXT = Decoder(str)
_SHORT_TEXT = Decoder(Text)
_POSITIONS = tuple(f"at_{number}" for number in range(MAX_POSITIONS))
_FIRST_ELEMENTS: Decoder[Any] = Decoder(
    defstruct("FirstElements", [(name, Raw) for name in _POSITIONS], array_like=True, gc=False)
)
"""Elements after them are skipped, without an object for each."""

_BINS = frozenset({0xC4, 0xC5, 0xC6})
"""First bytes of binary values."""
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""Name of an event type that is kept; no other text of an event of unknown type is."""


class ReferenceDecoder:
    """Decodes the payloads of one source and lets `era` judge what it understands."""

    def __init__(
        self,
        era: StreamEra,
        forwarding: Forwarding = NOTHING_FORWARDED,
        catalogue: Catalogue = CATALOGUE,
    ) -> None:
        self._era = era
        self._sessions, self._linker, self._salts = forwarding
        self._forms = catalogue.forms
        self._locate = catalogue.media.locate
        self._event_map, self._attributes = _event_map(catalogue)
        self.rank = NO_RANK
        """Data-parallel rank that the last batch gave."""
        self.skipped = 0
        """Events, so far, that were understood and change nothing of what is resident."""

    def decode_batch(
        self,
        payload: bytes,
        *,
        seq: int,
        received_at: float,
        replayed: bool,
        together: Together | None = None,
    ) -> Batch:
        """Return the batch in `payload`, with an Undecodable for an event that cannot be understood.

        Adjacent removals of one medium and group become one, and so do adjacent Undecodables of one reason.
        A timestamp that is no finite number is replaced by `received_at` and reported before the events.
        In a batch of more than MAX_ONE_BY_ONE events, `together` decodes those that are well-formed.
        Raises FrameError when no events are found, when there are more hashes than a batch may have, or when
        more than MAX_ONE_BY_ONE events (without `together` MAX_WITHOUT_SCANNER) must be decoded one by one.
        """
        ts, raw_events, self.rank = open_envelope(payload)
        events: list[Event] = []
        if ts is None:
            ts = received_at
            events.append(Undecodable("bad_timestamp", seq))
        run: list[bytes] = []
        for event in self._events(raw_events, seq, together):
            last = events[-1] if events else None
            if isinstance(event, Removed):
                if isinstance(last, Removed) and _at_one_location(last, event):
                    run.append(event.hashes)
                    continue
            elif isinstance(event, Undecodable) and isinstance(last, Undecodable) and _alike(last, event):
                last.count += 1
                continue
            _complete(last, run)
            run = [event.hashes] if isinstance(event, Removed) else []
            events.append(event)
        _complete(events[-1] if events else None, run)
        return Batch(seq, ts, received_at, events, len(raw_events), replayed)

    def _events(self, raw_events: list[Raw], seq: int, together: Together | None) -> Iterator[Event]:
        one_by_one = MAX_ONE_BY_ONE if together else MAX_WITHOUT_SCANNER
        if len(raw_events) <= MAX_ONE_BY_ONE:
            together = None
        room = MAX_BATCH_HASHES
        for at in range(0, len(raw_events), STRETCH_EVENTS):
            stretch = raw_events[at : at + STRETCH_EVENTS]
            events: Iterable[Event] | None = None if together is None else together(stretch)
            if events is None:
                one_by_one -= len(stretch)
                if one_by_one < 0:
                    raise FrameError("frame_too_large")
                events = chain.from_iterable(self._events_or_why_not(raw, seq, room) for raw in stretch)
            for event in events:
                if isinstance(event, Stored | Removed):
                    room -= len(event.hashes) // HASH_BYTES
                    if room < 0:
                        raise FrameError("frame_too_large")
                yield event

    def _events_or_why_not(self, raw: Raw, seq: int, room: int) -> tuple[Event, ...]:
        try:
            return self._understood_as(raw, room)
        except UnknownType as unknown:
            name = unknown.name if _PLAIN_NAME.fullmatch(unknown.name) else None
            return (Undecodable(unknown.reason, seq, event_type=name, medium=unknown.medium),)
        except EventError as rejected:
            return (Undecodable(rejected.reason, seq),)

    def _understood_as(self, raw: Raw, room: int) -> tuple[Event, ...]:
        """Return what an engine's event means: no event if it changes nothing, two if it moves blocks.

        A store whose last page is not full also gives two: one of its full pages, if any, and one of that.
        """
        first = memoryview(raw)[0]
        if first in _BINS:  # llm-d packs each event by itself
            raw = unpacked(raw)
            first = memoryview(raw)[0]
        if first & 0xF0 == 0x90 or first in (0xDC, 0xDD):
            elements = _elements(raw)
            form = self._form(elements[0] if elements else ABSENT, ABSENT)
            return self._understood(form, _of_array(elements, form), elements, room)
        if is_map(raw):
            event = decoded(self._event_map, raw, "bad_field_type")
            medium = self._attributes.get("medium")
            named = event.type if event.type != ABSENT else event.other_type
            form = self._form(named, ABSENT if medium is None else getattr(event, medium))
            values = {meaning: getattr(event, self._attributes[key]) for meaning, key in form.keys.items()}
            marks = {key for key in form.marks if getattr(event, self._attributes[key]) != ABSENT}
            return self._understood(form, _present(values), None, room, frozenset(marks))
        raise EventError("missing_type")

    def _form(self, raw: Raw, raw_medium: Raw) -> EventForm:
        if raw == ABSENT:
            raise EventError("missing_type")
        name = decoded(_TEXT, raw, "type_not_string")
        form = self._forms.get(name)
        if form is None:
            raise UnknownType(name, self._medium_if_any(raw_medium))
        return form

    def _medium_if_any(self, raw: Raw) -> str | None:
        """Return the canonical name of an event's medium; None if the event names none, or no text."""
        try:
            spelling = None if raw == ABSENT else OPTIONAL_TEXT.decode(raw)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return self._locate(spelling)[0] if spelling else None

    def _understood(
        self,
        form: EventForm,
        fields: Mapping[Meaning, Raw],
        elements: list[Raw] | None,
        room: int,
        marks: frozenset[str] = frozenset(),
    ) -> tuple[Event, ...]:
        if form.kind == "skipped":
            self.skipped += 1
            return ()

        def value(meaning: Meaning) -> Raw:
            raw = fields.get(meaning)
            if raw is not None:
                return raw
            if meaning in form.required:
                raise EventError("missing_field")
            return NIL

        if value("tenant") != NIL:
            return (self._of_object(form, fields),)
        if form.kind == "cleared":
            medium = self._medium_if_any(value("medium"))
            if medium is None and "medium" in form.required:
                raise EventError("bad_medium")
            owner = owner_in(value)
            return (Cleared(f"{owner}{OWNED}{medium or ''}" if owner else medium),)
        raw_hashes = value("hashes")
        if array_length(raw_hashes) > room:
            raise FrameError("frame_too_large")
        hashes = hashes_in(raw_hashes)
        packed = pack_hashes(hashes)
        spelling = decoded(OPTIONAL_TEXT, value("medium"), "bad_medium")
        medium, raw_medium, store_only = self._locate(spelling, owner_in(value))
        group_idx = group_in(value("group_idx"))
        event: Event
        seen = Sighting(form.name, form.kind, elements, fields, hashes, medium, raw_medium, marks)
        if form.kind == "moved":
            self._era.saw(seen, form)
            store_only = store_only or self._era.store_only(medium)
            left, raw_left, _ = self._locate(decoded(OPTIONAL_TEXT, value("from_medium"), "bad_medium"))
            return (
                Removed(packed, left, raw_left, group_idx),
                Stored(packed, 0, 0, None, medium, raw_medium, group_idx, store_only=store_only),
            )
        if form.kind == "removed":
            event = Removed(packed, medium, raw_medium, group_idx)
        else:
            where = (medium, raw_medium, group_idx)
            event = self._stored(value, fields, packed, where, in_map=elements is None)
        self._era.saw(seen, form)
        if isinstance(event, Stored):
            event.store_only = store_only or self._era.store_only(medium)
        if isinstance(event, Stored) and hashes and elements is not None and len(elements) == UNFILLED_LENGTH:
            last = tokens_in_last(len(hashes), event.block_size, fields.get("tokens"))
            if last != event.block_size:
                return split(event, last)
        return (event,)

    def _stored(
        self,
        value: Callable[[Meaning], Raw],
        fields: Mapping[Meaning, Raw],
        packed: bytes,
        where: tuple[str, str | None, int],
        *,
        in_map: bool,
    ) -> Stored:
        """Return a store of these blocks; `where` is (canonical medium, the engine's spelling, group)."""
        blocks, block_size = len(packed) // HASH_BYTES, block_size_in(value("block_size"))
        event = Stored(
            packed,
            block_size,
            blocks * block_size,
            parent_in(value("parent")),
            *where,
            decoded(OPTIONAL_TEXT, value("spec_kind"), "bad_field_type"),
            decoded(OPTIONAL_INTEGER, value("sliding_window"), "bad_field_type"),
            lora_in(value("lora_name"), value("lora_id")),
        )
        if self._sessions is not None:
            session = decoded(OPTIONAL_TEXT, value("session"), "bad_field_type")
            event.session = None if session is None else self._sessions.name(session)
        if self._linker is not None and event.medium == "gpu":
            given = BlockFields.by(fields, in_map=in_map)
            event.links = self._linker.links(given, blocks, block_size, event.lora)
        if self._salts is not None and in_map:
            adapter = value("lora_name") != NIL
            event.salt = salt_name(fields.get("salt"), fields.get("keys"), self._salts, adapter=adapter)
        return event

    def _of_object(self, form: EventForm, fields: Mapping[Meaning, Raw]) -> Event:
        """Return what an event says about a tenant's objects, each of which is a block."""
        group = tenant_group(decoded(_SHORT_TEXT, fields["tenant"], "bad_field_type"))
        if form.kind == "cleared":
            return Cleared("", group)
        key = fields.get("object_key", NIL)
        hashes = hashes_in(fields.get("hashes", EMPTY_ARRAY))
        if key != NIL:
            packed = object_hash(decoded(_SHORT_TEXT, key, "bad_field_type"))
        elif hashes:
            packed = pack_hashes(hashes)
        else:
            raise EventError("no_identity")
        spelling = decoded(OPTIONAL_TEXT, fields.get("medium", NIL), "bad_medium")
        medium, raw_medium, _ = self._locate(spelling)
        self._era.saw(Sighting(form.name, form.kind, None, fields, hashes, medium, raw_medium), form)
        if form.kind == "removed":
            return Removed(packed, medium, raw_medium, group)
        raw_size = fields.get("block_size", NIL)
        size = 0 if raw_size == NIL else block_size_in(raw_size)
        tokens = size * (len(packed) // HASH_BYTES)
        # Evictions are not announced, only explicit removals.
        return Stored(packed, size, tokens, None, medium, raw_medium, group, store_only=True)


@lru_cache(maxsize=8)
def _event_map(catalogue: Catalogue) -> tuple[Decoder[Any], Mapping[str, str]]:
    """Return a decoder of any event in map form, and by key the attribute that has its undecoded value.

    It makes a struct, not a dict, so that keys and values that are not needed are not decoded.
    """
    forms = catalogue.forms.values()
    keys = sorted({key for form in forms for key in (*form.keys.values(), *form.marks)})
    attributes = {key: f"key_{number}" for number, key in enumerate(keys)}
    event_map = defstruct(
        "EventMap",
        [(name, Raw, ABSENT) for name in ("type", "other_type", *attributes.values())],
        rename={
            "type": TYPE_KEY,
            "other_type": OTHER_TYPE_KEY,
            **{name: key for key, name in attributes.items()},
        },
        gc=False,
    )
    return Decoder(event_map), attributes


def _elements(raw: Raw) -> list[Raw]:
    """Return the elements of an event in array form, at most MAX_POSITIONS of them."""
    if array_length(raw) <= MAX_POSITIONS:
        return decoded(ARRAY, raw, "bad_field_type")
    first = decoded(_FIRST_ELEMENTS, raw, "bad_field_type")
    return [getattr(first, name) for name in _POSITIONS]


def _of_array(elements: list[Raw], form: EventForm) -> dict[Meaning, Raw]:
    """Return the fields of an event in array form; positions beyond the known ones are ignored."""
    given = len(elements)
    if given < form.least:
        raise EventError("truncated_tuple")
    return {
        meaning: elements[at]
        for meaning, at in form.positions.items()
        if at < given and not (at in form.foreign_maps and is_map(elements[at]))
    }


def _present(values: Mapping[Meaning, Raw]) -> dict[Meaning, Raw]:
    return {meaning: raw for meaning, raw in values.items() if raw != ABSENT}


def _at_one_location(one: Removed, other: Removed) -> bool:
    return (
        one.group_idx == other.group_idx and one.medium == other.medium and one.raw_medium == other.raw_medium
    )


def _alike(one: Undecodable, other: Undecodable) -> bool:
    return one.reason == other.reason and one.event_type == other.event_type and one.medium == other.medium


def _complete(last: Event | None, run: list[bytes]) -> None:
    """Give a Removed the hashes of the run it stands for, joined once: runs can be long."""
    if isinstance(last, Removed) and len(run) > 1:
        last.hashes = b"".join(run)
