"""ROCm ATOM, as of 2026-10: `atom/distributed/kv_events.py`.

Its events are vLLM's of 0.22 and 0.23, with a type and, since #1316 (2026-09), an element of its own. Since
then its messages have a sequence number, too; before, only its absence distinguished them from vLLM's.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field
from connectors.engines.sighting import Sighting

_OFFSET = "token_offset"
"""Tokens of the prompt before the first block: element 12 of an array."""
_LENGTH = 13
"""Elements of a store; no other engine's has as many."""

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),
        Field("tokens", "token_ids", 3),
        Field("block_size", "block_size", 4, required=True),
        Field("lora_id", "lora_id", 5),
        Field("medium", "medium", 6),
        Field("lora_name", "lora_name", 7),
        Field("keys", "extra_keys", 8),
        Field("group_idx", "group_idx", 9),  # nil
        Field("spec_kind", "kv_cache_spec_kind", 10),  # nil
        Field("sliding_window", "kv_cache_spec_sliding_window", 11),  # nil
    ),
    marks=frozenset({_OFFSET}),
)
_TRANSFERRED = EventType(
    "BlockTransferred",
    "moved",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("from_medium", "from_medium", 2, required=True),
        Field("medium", "to_medium", 3, required=True),
        Field("group_idx", "group_idx", 4),
    ),
)
"""Blocks moved from one medium to another, unchanged."""


def _recognised(seen: Sighting) -> bool:
    """Recognise ATOM's events by the type and the element that no other engine has."""
    if seen.kind == "moved" or _OFFSET in seen.marks:
        return True
    return seen.elements is not None and len(seen.elements) == _LENGTH


ATOM = Engine(
    name="atom",
    events=(_STORED, _TRANSFERRED),
    media={},
    # What other hosts sent: announced on arrival, and never again. FlexKV's medium REMOTE is another one.
    store_only=frozenset({"remote"}),
    recognised=_recognised,
    # BlockPool.publish points a hash at the block that was computed last, and announces it every time.
    one_copy=True,
    unnumbered=True,
)
