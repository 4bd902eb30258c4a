"""FlexKV, as of 34ab141 (2026): `flexkv/integration/dynamo/collector.py`, `flexkv/cache/cache_engine.py`.

A publisher of its own beside the engine's. Its events are vLLM's maps of the days before groups, of whole
prompts, and say how many tokens a block has, but not which.
"""

from __future__ import annotations

from msgspec import Raw

from connectors.engines.description import Engine, EventType, Field
from connectors.engines.sighting import NIL, Sighting

_NONE = Raw(b"\x90")
"""An empty array."""
_NO_TOKENS = Raw(b"\x00")

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),  # always nil
        Field("tokens", "token_ids", 3),  # always empty
        Field("block_size", "block_size", 4, required=True),
        Field("medium", "medium", 6),
    ),
)
_REMOVED = EventType(
    "BlockRemoved",
    "removed",
    (Field("hashes", "block_hashes", 1, required=True), Field("medium", "medium", 2)),
)


def _suspected(seen: Sighting) -> bool:
    """Tell its stores by what they lack: no other has a size, yet no tokens and no group, off the GPU."""
    fields = seen.fields
    return (
        seen.kind == "stored"
        and seen.elements is None
        and seen.medium != "gpu"
        and fields.get("tokens") == _NONE
        and fields.get("block_size", NIL) not in (NIL, _NO_TOKENS)
        and fields.get("parent", NIL) == NIL
        and "group_idx" not in fields
        and "owner" not in fields
    )


FLEXKV = Engine(
    name="flexkv",
    events=(_STORED, _REMOVED),
    media={},
    recognised=lambda seen: False,
    suspected=_suspected,
    # A prompt that brings one new block is announced whole, and each block leaves once.
    one_copy=True,
    era_prefix="flexkv-",
)
