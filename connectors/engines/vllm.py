"""vLLM 0.9 to 0.33.

Events: `vllm/distributed/kv_events.py`. Their arrays grew at the end over time; since 0.24 they are maps.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field, Medium, Metrics, Sum
from connectors.engines.sighting import Sighting, is_map

_LENGTHS = range(6, 13)
"""Elements that a store in an array has: 6 in 0.9, 12 in 0.22 and 0.23, the last versions with arrays."""
_NAMED_SINCE_LENGTH = 8
"""0.14 added the adapter's name as the eighth element. SGLang's arrays have a map there, or end before."""

_WHOSE = (Field("locality", "locality"), Field("owner", "ownership"))
"""Whose the medium is, in maps: locality since 0.26, ownership since 0.29."""

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),
        Field("tokens", "token_ids", 3),
        Field("block_size", "block_size", 4, required=True),
        Field("lora_id", "lora_id", 5),  # deprecated upstream in favour of the name
        Field("medium", "medium", 6),  # since 0.10.2
        Field("lora_name", "lora_name", 7),  # since 0.14
        Field("keys", "extra_keys", 8),  # since 0.17
        Field("group_idx", "group_idx", 9),  # since 0.20
        Field("spec_kind", "kv_cache_spec_kind", 10),  # since 0.22
        Field("sliding_window", "kv_cache_spec_sliding_window", 11),  # since 0.22
        Field("session", "session_id"),  # since 0.30
        *_WHOSE,
    ),
)
_REMOVED = EventType(
    "BlockRemoved",
    "removed",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("medium", "medium", 2),  # since 0.10.2
        Field("group_idx", "group_idx", 3),  # since 0.20
        *_WHOSE,
    ),
)
# ATOM's have a medium. No release of vLLM names an owner here; Dynamo and SMG read it.
_CLEARED = EventType("AllBlocksCleared", "cleared", (Field("medium", "medium", 1), *_WHOSE))
_TIER_CLEARED = EventType(  # proposed upstream (#57296)
    "TierBlocksCleared", "cleared", (Field("medium", "medium", 1, required=True), *_WHOSE)
)
_INACTIVE = EventType("BlockInactive", "skipped")  # proposed (#50732): no request uses a block that stays


def _recognised(seen: Sighting) -> bool:
    """Recognise vLLM's stores by their later fields, and by GPU blocks' hashes: bytes, or unsigned in arrays.

    Its maps have a group in every store of GPU blocks. Arrays of other lengths are other engines'.
    """
    if seen.kind != "stored":
        return False
    elements = seen.elements
    if elements is None:
        if "group_idx" in seen.fields or "spec_kind" in seen.fields:
            return True
    elif len(elements) not in _LENGTHS:
        return False
    elif len(elements) > _NAMED_SINCE_LENGTH or (
        len(elements) == _NAMED_SINCE_LENGTH and not is_map(elements[-1])
    ):
        return True
    return seen.medium == "gpu" and any(
        isinstance(value, bytes) or (value >= 1 << 63 and elements is not None) for value in seen.hashes
    )


_CACHED = "vllm:prompt_tokens_cached_by_source"

VLLM = Engine(
    name="vllm",
    events=(_STORED, _REMOVED, _CLEARED, _TIER_CLEARED, _INACTIVE),
    media={
        "GPU": Medium("gpu"),  # v1/core/block_pool.py
        "CPU": Medium("cpu"),  # OffloadingConnector
        # Connectors that store and never remove (LMCache, Mooncake) write it in lower case.
        "cpu": Medium("cpu", store_only=True),
        # Tiers of v1/kv_offload; no event ever says that a block left them.
        "FS": Medium("fs", store_only=True),  # 0.26
        "OBJ": Medium("obj", store_only=True),  # 0.26
        "STORAGE": Medium("storage", store_only=True),  # since 0.27
    },
    recognised=_recognised,
    # v1/metrics/loggers.py; queries and hits count tokens, and were gpu_prefix_cache_* before 0.10
    metrics=Metrics(
        rank_label="engine",
        samples={
            "prefix_cache_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
            "prefix_cache_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
            "external_queries": ("vllm:external_prefix_cache_queries",),
            "external_hits": ("vllm:external_prefix_cache_hits",),
            "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            # From the first time that a request is scheduled to its first token; both count when it ends.
            "prefill_seconds": ("vllm:request_prefill_time_seconds_sum",),
            "prefill_tokens": ("vllm:request_prefill_kv_computed_tokens_sum",),
        },
        labels={
            "capacity_blocks": ("vllm:cache_config_info", "num_gpu_blocks"),
            "block_size": ("vllm:cache_config_info", "block_size"),
        },
        # Where prompts came from; external_kv_transfer includes reloads from the CPU and failed pulls.
        sums={
            "computed_tokens": Sum("vllm:prompt_tokens_by_source", "source", frozenset({"local_compute"})),
            # Since 0.32. NIXL, Mooncake and MoRIIO say p2p, connectors that say nothing are unspecified.
            "transferred_tokens": Sum(_CACHED, "source", frozenset({"p2p", "external_unspecified"})),
            "reloaded_tokens": Sum(_CACHED, "source", frozenset({"host", "disk"})),
            "generation_tokens": Sum("vllm:generation_tokens"),
        },
        # Of SimpleCPUOffloadConnector, since 0.31. OffloadingConnector reports only the share in use.
        cpu_capacity_blocks=("vllm:simple_kv_offload_info", "capacity_blocks"),
        unused_cpu_blocks=1,  # the null block of its pool
        only={"vllm:simple_kv_offload_info": {"backend": frozenset({"cpu"})}},  # else the blocks are on disk
    ),
    # kv_cache_report_mode=full, since 0.26: a prefix hit is announced like a store, and nothing marks it.
    may_reannounce=frozenset({"map"}),
)
