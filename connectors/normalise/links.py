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

from connectors.engines.sighting import EMPTY_ARRAY, NIL, Meaning
from connectors.normalise.fields import ARRAY
from connectors.process.array_length import array_length
from schemas.hashing.content import LINK_BYTES, MAX_TOKEN, PERSON, usable_key

if TYPE_CHECKING:
    from connectors.normalise.scanner.blake2b import Words

NO_LINKS = b""
_EMPTY_TEXT = Raw(b"\xa0")
_ZERO, _ONE = bytes(LINK_BYTES), (1).to_bytes(LINK_BYTES, "big")
_HEAD = Struct("<3I")
_TOKENS = Decoder(list[int])


class BlockFields(NamedTuple):
    """Undecoded fields in which a store says what its GPU blocks hold; None: the event has no such field."""

    tokens: Raw | None
    keys: Raw | None
    media_keys: Raw | None
    salt: Raw | None
    in_map: bool
    """Whether the event is a map: an array that ends before its keys says nothing about them."""

    @classmethod
    def by(cls, fields: Mapping[Meaning, Raw], *, in_map: bool) -> BlockFields:
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

    def links(self, given: BlockFields, blocks: int, block_size: int, lora: str | None) -> bytes:
        """Return a link for each block, packed as hashes are; NO_LINKS where the event does not have them."""
        tokens, keys = given.tokens, given.keys
        if not blocks or not block_size or tokens is None or (keys is None and not given.in_map):
            return NO_LINKS
        if array_length(tokens) != blocks * block_size:
            return NO_LINKS
        of_keys, of_media = _entries(keys, blocks), _entries(given.media_keys, blocks)
        try:
            every = _TOKENS.decode(tokens)
        except (DecodeError, RecursionError):
            return NO_LINKS
        if of_keys is None or of_media is None or not 0 <= min(every) <= max(every) <= MAX_TOKEN:
            return NO_LINKS
        raw_salt = given.salt or NIL
        salt = b"" if raw_salt in (NIL, _EMPTY_TEXT) else bytes(raw_salt)
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
    if raw is None or raw == NIL:
        return repeat(b"")
    if array_length(raw) != blocks:
        return None
    return [b"" if entry in (NIL, EMPTY_ARRAY) else bytes(entry) for entry in ARRAY.decode(raw)]
