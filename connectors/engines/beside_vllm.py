"""vLLM's events as publishers beside an engine send them, who know nothing of groups, adapters and requests.

What a position or a key means they share with vLLM; what they leave empty their own descriptions say.
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
