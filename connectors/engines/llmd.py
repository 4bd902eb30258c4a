"""llm-d's storage backend for vLLM, as of 2026-06: `llmd_fs_backend/event_publisher.py` of llm-d-kv-cache.

Its events are vLLM's arrays of seven, each packed again inside a bin. It announces stores and nothing else;
the evictor beside it (`pvc_evictor/processes/deleter.py`) announces removals and nothing else.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field, Medium
from connectors.engines.sighting import Sighting

_MEDIA = {
    "SHARED_STORAGE": Medium("storage", store_only=True),
    "OBJECT_STORE": Medium("obj", store_only=True),
}

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),  # always 0
        # 3: token_ids, always empty
        Field("block_size", "block_size", 4, required=True),  # always 0
        Field("medium", "medium", 6),
    ),
)
_REMOVED = EventType(  # pvc_evictor's, which publishes on a socket of its own
    "BlockRemoved",
    "removed",
    (Field("hashes", "block_hashes", 1, required=True), Field("medium", "medium", 2)),
)


def _recognised(seen: Sighting) -> bool:
    return seen.raw_medium in _MEDIA


LLMD = Engine(
    name="llm-d",
    events=(_STORED, _REMOVED),
    media=_MEDIA,
    recognised=_recognised,
    one_copy=True,  # a file for each block, however often it is written
    era_prefix="llm-d-",
)
