"""One event as evidence of which engine sent it, since no payload names its engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Raw

Kind = Literal["stored", "removed", "cleared", "moved", "skipped"]
"""What an event is to us; `skipped` changes nothing of what is resident."""
Meaning = Literal[
    "hashes",
    "parent",
    "block_size",
    "lora_id",
    "medium",
    "from_medium",
    "lora_name",
    "object_key",
    "tenant",
    "group_idx",
    "spec_kind",
    "sliding_window",
    "session",
    "tokens",
    "keys",
    "media_keys",
    "salt",
    "owner",
    "locality",
]
"""What a field is to us: `schemas.events.Stored` has it, `lora` by name or by number. `from_medium` is what
blocks leave for `medium`; `owner` and `locality` say whose that is. The four from `tokens` to `salt` are
hashed where content hashes or salts are wanted, and go no further."""

NIL = Raw(b"\xc0")
EMPTY_ARRAY = Raw(b"\x90")


@dataclass(frozen=True, slots=True)
class Sighting:
    """An event that was understood."""

    type: str
    kind: Kind
    elements: Sequence[Raw] | None
    """Of an array, undecoded, the type first; None: the event is a map."""
    fields: Mapping[Meaning, Raw]
    """Undecoded fields that the event has."""
    hashes: Sequence[int | bytes]
    medium: str
    """Canonical."""
    raw_medium: str | None
    """The spelling, where it is not simply the canonical name in capitals."""
    marks: frozenset[str] = frozenset()
    """Keys of the map, of those that engines are recognised by."""


def is_map(raw: Raw) -> bool:
    """Return whether an undecoded value is a MessagePack map."""
    first = memoryview(raw)[0]
    return first & 0xF0 == 0x80 or first in (0xDE, 0xDF)
