"""TokenSpeed, as of 0.1.1: `tokenspeed/runtime/cache/kv_events.py`, scheduler 0.1.42.

Its arrays are vLLM's earliest ones without what comes after the block size. The last page of a prompt is
announced even if not full: with the size of a page and the ids that it has. A clear removes page by page.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field
from connectors.engines.sighting import Sighting

_LENGTH = 5
"""Elements of a store; vLLM's and SGLang's earliest had an adapter's number after these."""

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),
        Field("tokens", "token_ids", 3),
        Field("block_size", "block_size", 4, required=True),
    ),
)
_REMOVED = EventType("BlockRemoved", "removed", (Field("hashes", "block_hashes", 1, required=True),))


def _recognised(seen: Sighting) -> bool:
    return seen.kind == "stored" and seen.elements is not None and len(seen.elements) == _LENGTH


TOKENSPEED = Engine(
    name="tokenspeed",
    events=(_STORED, _REMOVED),
    media={},
    recognised=_recognised,
    era_prefix="tokenspeed-",
)
