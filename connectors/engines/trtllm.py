"""TensorRT-LLM 1.3, its streaming publisher.

Events: `tensorrt_llm/_torch/pyexecutor/kv_cache_events.py`, maps with some of vLLM's fields. They are of GPU
blocks of the largest attention window. Batches are numbered before they are queued, so drops are gaps.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field
from connectors.engines.sighting import NIL, Sighting

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
        Field("lora_name", "lora_name"),  # always nil
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
    """Recognise TensorRT-LLM's stores by multimodal keys, or by an adapter's name that is there and nil.

    vLLM's stores with such a name have a group, SGLang's a signed hash now and then. Maps without the name,
    such as those of llm-d-inference-sim, are of no engine that is known here.
    """
    if _MULTIMODAL in seen.marks:
        return True
    if seen.kind != "stored" or seen.elements is not None or seen.medium != "gpu":
        return False
    if seen.fields.get("lora_name") != NIL or seen.fields.keys() & {"group_idx", "spec_kind"}:
        return False
    return any(isinstance(value, int) and value >= 1 << 63 for value in seen.hashes)


TRTLLM = Engine(
    name="trtllm",
    events=(_STORED, _REMOVED, EventType("AllBlocksCleared", "cleared")),
    media={},
    recognised=_recognised,
    era_prefix="trtllm-",
)
