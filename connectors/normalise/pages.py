"""Pages that are announced before they are full, as TokenSpeed does with the last one of a prompt."""

from __future__ import annotations

from msgspec import Raw
from msgspec.structs import replace

from connectors.process.array_length import array_length
from schemas.events import Stored
from schemas.hashes import HASH_BYTES

UNFILLED_LENGTH = 5
"""Elements of a store that may have fewer ids than its blocks have room for: an array that ends with the
block size. In other stores ids and blocks need not agree, and nothing of ours depends on it."""


def tokens_in_last(blocks: int, block_size: int, ids: Raw | None) -> int:
    """Return how many tokens a store's last block holds: the ids left for it, if these do not fill it.

    If there are more or fewer ids than that, or none, the block counts as full.
    """
    rest = 0 if ids is None else array_length(ids) - (blocks - 1) * block_size
    return rest if 0 < rest < block_size else block_size


def split(event: Stored, last: int) -> tuple[Stored, ...]:
    """Split a store into one of its full blocks, if it has any, and one of its last, of `last` tokens."""
    before, packed = event.hashes[:-HASH_BYTES], event.hashes[-HASH_BYTES:]
    if not before:
        return (replace(event, block_size=last, tokens=last),)
    return (
        replace(event, hashes=before, tokens=event.tokens - event.block_size),
        replace(event, hashes=packed, block_size=last, tokens=last, parent=before[-HASH_BYTES:]),
    )
