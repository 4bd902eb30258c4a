"""TensorRT-LLM 1.3, its streaming publisher.

Events: `tensorrt_llm/_torch/pyexecutor/kv_cache_events.py`, maps with some of vLLM's fields. They are of GPU
blocks of the largest attention window. Numbers are taken before batches are queued, so drops are gaps.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field
from connectors.engines.sighting import Sighting

_MULTIMODAL = "mm_keys"
"""Key of a list for each block, which is there whenever the model takes multimodal input."""

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),
        Field("tokens", "token_ids", 3),  # numbers or texts
        Field("block_size", "block_size", 4, required=True),
        Field("lora_id", "lora_id", 5),
        Field("medium", "medium", 6),
        Field("media_keys", _MULTIMODAL),
    ),
    marks=frozenset({_MULTIMODAL}),
)
_REMOVED = EventType(
    "BlockRemoved",
    "removed",
    (Field("hashes", "block_hashes", 1, required=True), Field("medium", "medium", 2)),
)


def _recognised(seen: Sighting) -> bool:
    """Tell TensorRT-LLM's maps by multimodal keys, and by unsigned hashes without what vLLM says besides.

    vLLM's maps have a group or the kind of attention in every store of GPU blocks, and one hash in every
    removal; SGLang's hashes are signed.
    """
    if _MULTIMODAL in seen.marks:
        return True
    if seen.elements is not None or seen.medium != "gpu":
        return False
    if not any(isinstance(value, int) and value >= 1 << 63 for value in seen.hashes):
        return False
    if seen.kind == "removed":
        return len(seen.hashes) > 1
    return seen.kind == "stored" and not seen.fields.keys() & {"group_idx", "spec_kind", "sliding_window"}


TRTLLM = Engine(
    name="trtllm",
    events=(_STORED, _REMOVED, EventType("AllBlocksCleared", "cleared")),
    media={},
    recognised=_recognised,
    era_prefix="trtllm-",
)
