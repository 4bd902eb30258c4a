"""Links of the blocks of one store (`schemas.hashing.content`), from fields that are not forwarded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from msgspec import DecodeError, Raw
from msgspec.msgpack import Decoder

from connectors.engines.sighting import Meaning
from connectors.process.array_length import array_length
from schemas.hashing.content import LINK_BYTES, MAX_TOKEN, PERSON, usable_key

if TYPE_CHECKING:
    from connectors.normalise.scanner.blake2b import Words

NO_LINKS = b""
_NIL = b"\xc0"
_EMPTY_ARRAY = b"\x90"
_EMPTY_TEXT = b"\xa0"
_ZERO, _ONE = bytes(LINK_BYTES), (1).to_bytes(LINK_BYTES, "big")
_HEAD = Struct("<3I")
_TOKENS = Decoder(list[int])
_ENTRIES = Decoder(list[Raw])


class Told(NamedTuple):
    """Undecoded fields in which a store says what its GPU blocks hold; None: the event has no such field."""

    tokens: Raw | None
    keys: Raw | None
    media_keys: Raw | None
    salt: Raw | None
    in_map: bool
    """Whether the event is a map: an array that ends before its keys says nothing about them."""

    @classmethod
    def by(cls, fields: Mapping[Meaning, Raw], *, in_map: bool) -> Told:
        """Return these of an event's fields."""
        get = fields.get
        return cls(get("tokens"), get("keys"), get("media_keys"), get("salt"), in_map)


class Linker:
    """Makes links with one key."""

    def __init__(self, key: bytes) -> None:
        """`key` is empty for none."""
        self._key = usable_key(key)

    @cached_property
    def state(self) -> Words:
        """The hash state from which the scanner makes the same links."""
        # numba takes a second to import, and not every process scans
        from connectors.normalise.scanner.blake2b import state_of

        return state_of(self._key, PERSON)

    def links(self, told: Told, blocks: int, block_size: int, lora: str | None) -> bytes:
        """Return a link for each block, packed as hashes are; NO_LINKS where the event does not have them."""
        tokens, keys = told.tokens, told.keys
        if not blocks or not block_size or tokens is None or (keys is None and not told.in_map):
            return NO_LINKS
        if array_length(tokens) != blocks * block_size:
            return NO_LINKS
        of_keys, of_media = _entries(keys, blocks), _entries(told.media_keys, blocks)
        try:
            every = _TOKENS.decode(tokens)
        except (DecodeError, RecursionError):
            return NO_LINKS
        if of_keys is None or of_media is None or not 0 <= min(every) <= max(every) <= MAX_TOKEN:
            return NO_LINKS
        salt = b"" if told.salt is None else bytes(told.salt)
        if salt in (_NIL, _EMPTY_TEXT):
            salt = b""
        name = (lora or "").encode()
        ids = Struct(f"<{block_size}I").pack
        links = []
        for number, key, media_key in zip(range(blocks), of_keys, of_media, strict=False):
            more = key + media_key + salt
            head = _HEAD.pack(block_size, len(name), len(more))
            message = head + ids(*every[number * block_size : (number + 1) * block_size]) + name + more
            link = blake2b(message, digest_size=LINK_BYTES, key=self._key, person=PERSON).digest()
            links.append(_ONE if link == _ZERO else link)
        return b"".join(links)


def _entries(raw: Raw | None, blocks: int) -> list[bytes] | repeat[bytes] | None:
    """Return the keys of each block; None if `raw` is not a list with an entry for each."""
    if raw is None or bytes(raw) == _NIL:
        return repeat(b"")
    if array_length(raw) != blocks:
        return None
    entries = [bytes(entry) for entry in _ENTRIES.decode(raw)]
    return [b"" if entry in (_NIL, _EMPTY_ARRAY) else entry for entry in entries]
