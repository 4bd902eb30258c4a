"""FlexKV, as of 34ab141 (2026): `flexkv/integration/dynamo/collector.py`, `flexkv/cache/cache_engine.py`.

A publisher of its own beside the engine's. Its events are vLLM's maps as they were before groups, of whole
prompts. They say how many tokens a block has, but not which; parents are always nil.
"""

from __future__ import annotations

from msgspec import Raw

from connectors.engines.beside_vllm import REMOVED, STORED
from connectors.engines.description import Engine
from connectors.engines.sighting import EMPTY_ARRAY, NIL, Sighting

_NO_TOKENS = Raw(b"\x00")


def _suspected(seen: Sighting) -> bool:
    """Recognise its stores by what they lack: only they have a size, but no tokens or group, off the GPU."""
    fields = seen.fields
    return (
        seen.kind == "stored"
        and seen.elements is None
        and seen.medium != "gpu"
        and fields.get("tokens") == EMPTY_ARRAY
        and fields.get("block_size", NIL) not in (NIL, _NO_TOKENS)
        and fields.get("parent", NIL) == NIL
        and "group_idx" not in fields
        and "owner" not in fields
    )


FLEXKV = Engine(
    name="flexkv",
    events=(STORED, REMOVED),
    media={},
    recognised=lambda seen: False,
    suspected=_suspected,
    # A prompt that brings one new block is announced whole, and each block leaves once.
    one_copy=True,
    era_prefix="flexkv-",
)
