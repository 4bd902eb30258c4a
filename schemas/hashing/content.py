"""Content hashes: what a block holds, the same whatever engine, seed or algorithm its own hash comes from.

The link of a block is a hash of what it holds itself:

    link = BLAKE2b(message, digest_size=8, key=key, person="kvlens-content-1"), big-endian; 1 instead of 0
    message = n, bytes of lora, bytes of keys (each u32), n token ids (each u32), lora (UTF-8), keys

All numbers in the message are little-endian. `keys` are what the engine hashes of the block besides tokens
and adapter, in MessagePack and one behind the other: its entry of `extra_keys`, its entry of `mm_keys`, the
`cache_salt`; nothing for what is nil or empty. The content hash of a block covers the prompt up to its end:

    content = mix(before * 0x9E3779B97F4A7C15 + link mod 2**64); 1 instead of 0

`before` is the content hash of the block before, 0 for the first block; `mix` is the finaliser of SplitMix64.
A link covers a whole block, so content hashes compare only where block sizes are the same.

The connector makes links, because only it sees tokens; whoever knows the block before makes content hashes of
them. Without a key, everybody who guesses the tokens of a block can tell that they were served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from struct import pack
from typing import Final

from msgspec import msgpack

from schemas.hashing.errors import NotComputable
from schemas.hashing.vllm_keys import Request

SCHEME: Final = "content"
"""Instead of a hash scheme in the hash domain of replicas whose blocks have content hashes."""
UNKNOWN = 0
"""Instead of a link or a content hash that nobody knows."""
LINK_BYTES = 8
PERSON = b"kvlens-content-1"
KEY_BYTES = 64
"""The longest key that BLAKE2b takes; of a longer one its digest counts."""
MAX_TOKEN = (1 << 32) - 1
"""Blocks with a greater token id have no link."""

FACTOR = 0x9E3779B97F4A7C15
FIRST_FACTOR = 0xBF58476D1CE4E5B9
SECOND_FACTOR = 0x94D049BB133111EB
"""Of the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""

_WORD = (1 << 64) - 1
_KEYS_AS_TOLD = (0, 30, 0)
"""A version of vLLM that hashes keys in the form in which all of them write keys in events."""
_PLAIN = Request()


def usable_key(key: bytes) -> bytes:
    """Return a key that BLAKE2b takes: the key itself, or its digest; empty for none."""
    return key if len(key) <= KEY_BYTES else blake2b(key).digest()


def link(tokens: Sequence[int], lora: str = "", keys: bytes = b"", *, key: bytes = b"") -> int:
    """Return the link of a block. Raises NotComputable for token ids that are not of 32 bits."""
    if not tokens or not 0 <= min(tokens) <= max(tokens) <= MAX_TOKEN:
        raise NotComputable("content hashes are of token ids of 32 bits")
    name = lora.encode()
    message = pack(f"<3I{len(tokens)}I", len(tokens), len(name), len(keys), *tokens) + name + keys
    digest = blake2b(message, digest_size=LINK_BYTES, key=usable_key(key), person=PERSON).digest()
    return int.from_bytes(digest, "big") or 1


def follow(before: int, linked: int) -> int:
    """Return the content hash of a block by that of the block before, 0 for the first, and its link."""
    value = (before * FACTOR + linked) & _WORD
    value = ((value ^ (value >> 30)) * FIRST_FACTOR) & _WORD
    value = ((value ^ (value >> 27)) * SECOND_FACTOR) & _WORD
    return (value ^ (value >> 31)) or 1


@dataclass(frozen=True)
class Content:
    """Content hashes of prompts, for who has their tokens: a router that asks the index."""

    block_size: int = 16
    """Tokens of a block of the engine."""
    key: bytes = b""
    """As the connectors have it (`connector.content_key_file`, without white space around it)."""

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise NotComputable("a block has one token or more")

    @cached_property
    def _key(self) -> bytes:
        return usable_key(self.key)

    def words(self, tokens: Sequence[int], request: Request = _PLAIN) -> list[int]:
        """Return the content hash of each full block. Raises NotComputable.

        Adapter, salt and items of the request count as vLLM 0.19 and later write them in events.
        """
        own: Sequence[int] = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        lora = "" if request.lora is None else request.lora.name
        words: list[int] = []
        content = UNKNOWN
        for start in range(0, len(own) - self.block_size + 1, self.block_size):
            end = start + self.block_size
            hashed = request.keys(_KEYS_AS_TOLD, start, end)
            keys = b"" if hashed is None else msgpack.encode(hashed)
            content = follow(content, link(own[start:end], lora, keys, key=self._key))
            words.append(content)
        return words
