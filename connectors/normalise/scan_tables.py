"""The engines' descriptions as bytes, for compiled code.

Compiled code takes them as arguments, so that nothing is compiled again when a description changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from msgspec.msgpack import encode

from connectors.engines.catalogue import TYPE_KEY, Catalogue, EventForm
from connectors.engines.media import Media
from connectors.engines.sighting import Kind, Meaning
from connectors.normalise.scanner.forms import (
    BY_LENGTH,
    CLEARED,
    F_GROUP,
    F_HASHES,
    F_KEYS,
    F_KIND,
    F_LOCALITY,
    F_LORA,
    F_LORA_ID,
    F_MEDIA_KEYS,
    F_MEDIUM,
    F_OTHER,
    F_PARENT,
    F_RARE,
    F_SALT,
    F_SESSION,
    F_SIZE,
    F_TOKENS,
    F_TYPE,
    F_WINDOW,
    FOREIGN,
    FORM_ROW,
    KEY_FIELD,
    KEY_NEXT,
    KEY_ROW,
    KEY_TEXT,
    KEYS,
    KIND,
    LEAST,
    MAX_KEYS,
    MAX_POSITIONS,
    MAX_REQUIRED,
    MAX_TEXT,
    POSITIONS,
    REMOVED,
    REQUIRED,
    SKIPPED,
    STORED,
    TAG,
)
from connectors.normalise.scanner.layout import Bytes
from connectors.normalise.scanner.location import (
    MAX_ENCODED_BYTES,
    MAX_MEDIUM_BYTES,
    MEDIUM_ENCODED,
    MEDIUM_FIELDS,
    MEDIUM_GPU,
    MEDIUM_LOCATION,
    MEDIUM_RAW,
    MEDIUM_ROW,
    MEDIUM_STORE_ONLY,
    MEDIUM_TEXT,
    NO_MEDIUM,
)
from connectors.process.errors import DataError

_FIELDS: dict[Meaning, int] = {
    "hashes": F_HASHES,
    "parent": F_PARENT,
    "block_size": F_SIZE,
    "lora_id": F_LORA_ID,
    "medium": F_MEDIUM,
    "lora_name": F_LORA,
    "group_idx": F_GROUP,
    "spec_kind": F_KIND,
    "sliding_window": F_WINDOW,
    "session": F_SESSION,
    "object_key": F_RARE,
    "tenant": F_RARE,
    "tokens": F_TOKENS,
    "keys": F_KEYS,
    "media_keys": F_MEDIA_KEYS,
    "salt": F_SALT,
    "owner": F_RARE,
    "locality": F_LOCALITY,
}
_KINDS: dict[Kind, int] = {
    "stored": STORED,
    "removed": REMOVED,
    "cleared": CLEARED,
    "skipped": SKIPPED,
}


class TableTooSmall(DataError, ValueError):
    """A description has more of something, or something longer, than the scanner's tables have room for."""

    subject: str
    size: int
    room: int
    line = "{subject}: {size}, and the scanner has room for {room}"


@dataclass(frozen=True, slots=True, eq=False)
class ScanTables:
    """Tables by which the scanner reads events and writes media."""

    forms: Bytes
    """Rows of `scanner.forms`, one for each type of event."""
    media: Bytes
    """Rows of `scanner.location`, one for each spelling of a medium."""


@lru_cache(maxsize=8)
def scan_tables(catalogue: Catalogue) -> ScanTables:
    """Return the tables of all engines. Raises TableTooSmall."""
    return ScanTables(
        _forms([form for form in catalogue.forms.values() if form.everyday]), _media(catalogue.media)
    )


def _forms(forms: list[EventForm]) -> Bytes:
    rows = np.zeros((len(forms) + 1, FORM_ROW), np.uint8)  # the last one says NO_MORE
    for row, form in zip(rows, forms, strict=False):
        row[KIND] = _KINDS[form.kind]
        row[LEAST] = form.least
        _check(form.name, "fields it cannot be without", len(form.required), MAX_REQUIRED)
        row[REQUIRED] = len(form.required)
        for number, meaning in enumerate(sorted(form.required), REQUIRED + 1):
            row[number] = _FIELDS[meaning]
        _put(row, TAG, form.name)
        row[POSITIONS : POSITIONS + MAX_POSITIONS] = F_OTHER
        for meaning, at in form.positions.items():
            _check(form.name, "position", at, MAX_POSITIONS - 1)
            foreign = FOREIGN if at in form.foreign_maps else 0
            row[POSITIONS + at] = _FIELDS[meaning] + foreign
        keys = [(TYPE_KEY, F_TYPE), *((key, _FIELDS[meaning]) for meaning, key in form.keys.items())]
        _check(form.name, "keys", len(keys), MAX_KEYS)
        for number, (key, field) in enumerate(keys, 1):
            at = KEYS + (number - 1) * KEY_ROW
            _put(row, at + KEY_TEXT, key)
            row[at + KEY_FIELD] = field
            row[at + KEY_NEXT] = row[BY_LENGTH + len(key)]
            row[BY_LENGTH + len(key)] = number
    return rows


def _media(media: Media) -> Bytes:
    """Return a row for no medium, and for each spelling and its lower case; the scanner gives others up."""
    known = media.spellings
    spellings = list(dict.fromkeys(("", *known, *map(str.lower, known))))
    _check("media", "spellings", len(spellings), NO_MEDIUM - 1)
    locations = [media.locate(spelling) for spelling in spellings]
    names = [location[:2] for location in locations]
    rows = np.zeros((len(spellings) + 1, MEDIUM_ROW), np.uint8)
    rows[-1, MEDIUM_RAW] = NO_MEDIUM
    for row, spelling, location in zip(rows, spellings, locations, strict=False):
        medium, raw_medium, store_only = location
        fields = {"medium": medium} if medium != "gpu" else {}
        if raw_medium is not None:
            fields["raw_medium"] = raw_medium
        encoded = b"".join(encode(text) for field in fields.items() for text in field)
        _check(spelling, "bytes", len(spelling.encode()), MAX_MEDIUM_BYTES)
        _check(spelling, "bytes in records", len(encoded), MAX_ENCODED_BYTES)
        row[MEDIUM_LOCATION] = names.index(location[:2])
        row[MEDIUM_STORE_ONLY] = store_only
        row[MEDIUM_FIELDS] = len(fields)
        row[MEDIUM_GPU] = medium == "gpu"
        row[MEDIUM_RAW] = len(spelling)
        row[MEDIUM_ENCODED] = len(encoded)
        row[MEDIUM_TEXT : MEDIUM_TEXT + len(spelling)] = np.frombuffer(spelling.encode(), np.uint8)
        at = MEDIUM_TEXT + MAX_MEDIUM_BYTES
        row[at : at + len(encoded)] = np.frombuffer(encoded, np.uint8)
    return rows


def _put(row: Bytes, at: int, text: str) -> None:
    encoded = encode(text)
    _check(text, "bytes", len(encoded) - 1, MAX_TEXT)
    row[at : at + len(encoded)] = np.frombuffer(encoded, np.uint8)


def _check(subject: str, what: str, size: int, room: int) -> None:
    if size > room:
        raise TableTooSmall(f"{what} of {subject}", size, room)
