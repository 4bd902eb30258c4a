"""What the positions of array-encoded events mean, written down from the engines' sources."""

from __future__ import annotations

STORED_FIELDS = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
"""Of a BlockStored; older engines send fewer."""
REMOVED_FIELDS = ("type", "block_hashes", "medium", "group_idx")
