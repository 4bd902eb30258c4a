"""What vLLM hashes of a block besides its tokens: adapter, multimodal items, salt.

Source: `generate_block_hash_extra_keys` of vllm/v1/core/kv_cache_utils.py, releases 0.9.2 to 0.33.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.hashing.errors import NotComputable
from schemas.hashing.versions import Version

LORA_BY_NAME = (0, 11, 1)
"""Before, the adapter's number."""
ITEMS_WITH_OFFSET = (0, 19, 0)
"""Before, an item's identifier alone."""
TAGGED = (0, 31, 0)
"""Each key says what it is, and an adapter's has its path."""

Keys = tuple[object, ...] | None


class Lora(NamedTuple):
    """An adapter as the engine knows it; which of the three counts depends on its version."""

    name: str
    path: str | None = None
    number: int | None = None


class Item(NamedTuple):
    """An image or other multimodal item of the prompt."""

    identifier: str
    """As the engine calls it: mostly a digest of the item, or the caller's own id."""
    offset: int
    """Its first token."""
    length: int
    """Tokens that stand for it."""


@dataclass(frozen=True)
class Request:
    """What there is to a prompt besides its tokens."""

    lora: Lora | None = None
    salt: str | None = None
    items: Sequence[Item] = ()
    """In the order of their offsets."""

    def keys(self, version: Version, start: int, end: int) -> Keys:
        """Return the keys of the block of tokens `start` to `end`. Raises NotComputable."""
        tagged = version >= TAGGED
        keys = [] if self.lora is None else [_lora_key(self.lora, version)]
        for item in self.items:
            if item.offset < end and item.offset + item.length > start:
                identifier, at = _own(item.identifier), item.offset - start
                if tagged:
                    keys.append(("mm", identifier, at))
                else:
                    keys.append((identifier, at) if version >= ITEMS_WITH_OFFSET else identifier)
        if self.salt and start == 0:
            keys.append(("cache_salt", _own(self.salt)) if tagged else _own(self.salt))
        return tuple(keys) or None


def _lora_key(lora: Lora, version: Version) -> object:
    if version < LORA_BY_NAME:
        if lora.number is None:
            raise NotComputable("vLLM before 0.11.1 hashes an adapter's number: say it")
        return lora.number
    if version < TAGGED:
        return _own(lora.name)
    if lora.path is None:
        raise NotComputable("vLLM from 0.31.0 on hashes an adapter's path: say it")
    return "lora", _own(lora.name), _own(lora.path)


def _own(text: str) -> str:
    """Return an object of its own: pickle writes one that occurs twice only once, and the engine's differ."""
    return text.encode().decode()
