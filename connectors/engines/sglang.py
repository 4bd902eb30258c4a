"""SGLang 0.4 to 0.5.23.

Events: `sglang/srt/disaggregation/kv_events.py`, vLLM's of an early version that went their own way. They are
maps since 0.5.20.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field, Medium
from connectors.engines.sighting import Sighting, is_map

_UNSIGNED_SINCE_LENGTH = 7
"""vLLM's hashes in arrays shorter than this are signed, too."""
_METADATA = 7
"""Position of a map such as `{"cache_salt": ...}` in 0.5.18 (`BlockStoredWithMetadata`); optional."""

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),
        # 3: token_ids, with EAGLE pairs of them
        Field("block_size", "block_size", 4, required=True),
        Field("lora_id", "lora_id", 5),  # always nil
        Field("medium", "medium", 6),  # since 0.5.9
        Field("session", "session_id"),  # since 0.5.20, as cache_salt
        Field("lora_name", "lora_name"),  # since 0.5.23
    ),
    foreign_maps=frozenset({_METADATA}),
)
_REMOVED = EventType(
    "BlockRemoved",
    "removed",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("medium", "medium", 2),  # since 0.5.9
    ),
)
_CLEARED = EventType("AllBlocksCleared", "cleared")


def _recognised(seen: Sighting) -> bool:
    """Tell SGLang's events by its host tier, its metadata, signed hashes, and removals of whole radix nodes.

    vLLM's block pool removes one block per event, and its hashes of GPU blocks are unsigned since the medium
    is announced.
    """
    if (seen.raw_medium or "").upper() == "CPU_PINNED":
        return True
    if seen.kind == "removed":
        return seen.medium == "gpu" and len(seen.hashes) > 1
    elements = seen.elements
    if elements is not None:
        if len(elements) == _METADATA + 1 and is_map(elements[_METADATA]):
            return True
        if len(elements) < _UNSIGNED_SINCE_LENGTH:
            return False
    return seen.medium == "gpu" and any(isinstance(value, int) and value < 0 for value in seen.hashes)


SGLANG = Engine(
    name="sglang",
    events=(_STORED, _REMOVED, _CLEARED),
    # StorageMedium of the events' module
    media={
        "GPU": Medium("gpu"),
        "CPU_PINNED": Medium("cpu"),  # HiCache's host tier
        "CPU_TIER1": Medium("cpu"),
        "DISK": Medium("disk"),
        "EXTERNAL": Medium("external"),
    },
    recognised=_recognised,
    era_prefix="sglang-",
)
