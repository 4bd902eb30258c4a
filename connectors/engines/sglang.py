"""SGLang 0.4 to 0.5.23.

Events: `sglang/srt/disaggregation/kv_events.py`, an early version of vLLM's that has diverged since. They are
maps since 0.5.20.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field, Medium, Metrics, Sum
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
        Field("tokens", "token_ids", 3),  # with EAGLE pairs of them
        Field("block_size", "block_size", 4, required=True),
        Field("lora_id", "lora_id", 5),  # always nil
        Field("medium", "medium", 6),  # since 0.5.9
        Field("salt", "cache_salt"),  # since 0.5.20
        Field("session", "session_id"),  # since 0.5.20
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
_CLEARED = EventType("AllBlocksCleared", "cleared", (Field("medium", "medium", 1),))


def _recognised(seen: Sighting) -> bool:
    """Recognise SGLang's events by its host tier, its metadata, and signed hashes.

    vLLM's hashes of GPU blocks are unsigned since the medium is announced.
    """
    if (seen.raw_medium or "").upper() == "CPU_PINNED":
        return True
    elements = seen.elements
    if seen.kind == "removed" and elements is not None:
        return False
    if elements is not None:
        if len(elements) == _METADATA + 1 and is_map(elements[_METADATA]):
            return True
        if len(elements) < _UNSIGNED_SINCE_LENGTH:
            return False
    return seen.medium == "gpu" and any(isinstance(value, int) and value < 0 for value in seen.hashes)


def _suspected(seen: Sighting) -> bool:
    """Suspect removals of several blocks in arrays, those of a radix node; vLLM's are of one block each."""
    return (
        seen.elements is not None and seen.kind == "removed" and seen.medium == "gpu" and len(seen.hashes) > 1
    )


_FIRST_RANK = {
    "tp_rank": frozenset({"", "0"}),  # all of them count the same, if they are set to count
    "pp_rank": frozenset({"", "0"}),
    "priority": frozenset({""}),  # others are parts of it
}
_WHOLE = {"priority": frozenset({""})}
_ON_GPU = frozenset({"device", "total", ""})
"""Sources of cached tokens: it is `total`, or none at all, where nothing but the GPU has a cache."""
_PREFILL = {**_FIRST_RANK, "category": frozenset({"forward_extend", "forward_prefill"})}

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
    suspected=_suspected,
    # flush_cache resets HiCache's host pool with the GPU's: HiRadixCache.reset, UnifiedRadixCache.reset
    clears_all=True,
    # srt/observability/metrics_collector.py (0.5.15 to 0.5.23), srt/metrics/collector.py (before)
    metrics=Metrics(
        rank_label="dp_rank",
        samples={
            # Time of the GPU in passes of prefill alone, not in those that --enable-mixed-chunk mixes.
            "prefill_seconds": ("sglang:forward_execution_seconds", "sglang:gpu_execution_seconds"),
            "prefill_tokens": ("sglang:realtime_tokens",),
            "computed_tokens": ("sglang:realtime_tokens",),
            "block_size": ("sglang:page_size",),  # since 0.5.15
            # Of full attention, where an engine has several pools; token_usage is that of the fullest one.
            "kv_cache_usage": ("sglang:full_token_usage", "sglang:token_usage"),
            "cpu_capacity_tokens": ("sglang:hicache_host_total_tokens",),
        },
        labels={"block_size": ("sglang:cache_config_info", "page_size")},  # of 0.5.9
        # The tokenizer counts these when a request ends, for all ranks together; they have no rank.
        sums={
            "prefix_cache_queries": Sum("sglang:prompt_tokens"),
            "prefix_cache_hits": Sum("sglang:cached_tokens", "cache_source", _ON_GPU),
            "external_hits": Sum("sglang:cached_tokens", "cache_source", but=_ON_GPU),
            "reloaded_tokens": Sum("sglang:cached_tokens", "cache_source", but=_ON_GPU),
            "generation_tokens": Sum("sglang:generation_tokens"),
        },
        capacity_tokens="sglang:max_total_num_tokens",
        unused_blocks=0,  # the capacity does not include padding
        only={
            "sglang:forward_execution_seconds": _PREFILL,
            "sglang:gpu_execution_seconds": _PREFILL,
            "sglang:realtime_tokens": {**_FIRST_RANK, "mode": frozenset({"prefill_compute"})},
            "sglang:full_token_usage": _WHOLE,
            "sglang:token_usage": _WHOLE,
        },
    ),
    era_prefix="sglang-",
)
