"""vLLM's events as publishers beside an engine send them, which know no groups, adapters or requests.

Positions and keys mean the same as in vLLM's events; the publishers' descriptions say what they leave empty.
"""

from __future__ import annotations

from connectors.engines.description import EventType, Field

STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),
        # 3: token_ids
        Field("block_size", "block_size", 4, required=True),
        Field("medium", "medium", 6),
    ),
)
REMOVED = EventType(
    "BlockRemoved",
    "removed",
    (Field("hashes", "block_hashes", 1, required=True), Field("medium", "medium", 2)),
)
