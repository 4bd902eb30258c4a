"""Decode one field of an event for the reference decoder, or raise why it cannot be understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import DecodeError, Raw
from msgspec.msgpack import Decoder

from connectors.engines.media import owner_named
from connectors.engines.sighting import NIL, Meaning
from connectors.normalise.errors import EventError
from connectors.normalise.hashes import pack_hash
from connectors.normalise.wire import MAX_BLOCK_SIZE, MAX_GROUP_IDX, Text
from schemas.reasons import UndecodableReason

T = TypeVar("T")

ARRAY = Decoder(list[Raw])
_BYTES = Decoder(bytes)
_ANYTHING = Decoder(Raw)
OPTIONAL_TEXT = Decoder(Text | None)
_INTEGER = Decoder(int)
OPTIONAL_INTEGER = Decoder(int | None)
_HASHES = Decoder(list[int | bytes])
_PARENT = Decoder(int | bytes | None)
_LORA_ID = Decoder(int | Text | None)


def decoded(decoder: Decoder[T], raw: Raw, reason: UndecodableReason) -> T:
    """Return a value. Raises EventError for `reason`, or for text that is not UTF-8."""
    try:
        return decoder.decode(raw)
    except UnicodeDecodeError:
        raise EventError("invalid_utf8") from None
    except (DecodeError, RecursionError):
        raise EventError(reason) from None


def hashes_in(raw: Raw) -> list[int | bytes]:
    """Return the hashes of blocks as the engine writes them. Raises EventError."""
    try:
        return _HASHES.decode(raw)
    except (DecodeError, RecursionError):
        if NIL in decoded(ARRAY, raw, "bad_block_hashes"):
            raise EventError("nil_hash") from None
        raise EventError("bad_hash_type") from None


def parent_in(raw: Raw) -> bytes | None:
    """Return the packed hash of the block before, None if there is none. Raises EventError."""
    parent = decoded(_PARENT, raw, "bad_parent_hash")
    try:
        return None if parent is None else pack_hash(parent)
    except EventError:
        raise EventError("bad_parent_hash") from None


def block_size_in(raw: Raw) -> int:
    """Return how many tokens a block has. Raises EventError."""
    block_size: int = decoded(_INTEGER, raw, "bad_block_size")
    if not 0 <= block_size <= MAX_BLOCK_SIZE:
        raise EventError("bad_block_size")
    return block_size


def group_in(raw: Raw) -> int:
    """Return the number of a KV cache group, 0 if the engine names none. Raises EventError."""
    group_idx: int | None = decoded(OPTIONAL_INTEGER, raw, "bad_group")
    if group_idx is None:
        return 0
    if not 0 <= group_idx <= MAX_GROUP_IDX:
        raise EventError("bad_group")
    return group_idx


def lora_in(raw_name: Raw, raw_id: Raw) -> str | None:
    """Return the adapter's name, or its number where the engine gives no name."""
    name: str | None = decoded(OPTIONAL_TEXT, raw_name, "bad_field_type")
    number = decoded(_LORA_ID, raw_id, "bad_field_type")
    if name is None and number is not None:
        return str(number)
    return name


def owner_in(value: Callable[[Meaning], Raw]) -> str:
    """Return the owner of an event's medium; empty: the engine itself."""
    owner, locality = value("owner"), value("locality")
    if owner == NIL and locality == NIL:
        return ""
    return owner_named(
        decoded(OPTIONAL_TEXT, owner, "bad_medium"), decoded(OPTIONAL_TEXT, locality, "bad_medium")
    )


def unpacked(raw: Raw) -> Raw:
    """Return the value that is encoded in bytes."""
    try:
        return _ANYTHING.decode(_BYTES.decode(raw))
    except (DecodeError, RecursionError):
        raise EventError("missing_type") from None
