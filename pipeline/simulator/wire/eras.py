"""The wire formats that engine releases have used: which fields, in which order, as arrays or maps.

Source: the released `distributed/kv_events.py` of vLLM 0.9 to 0.33, `disaggregation/kv_events.py` of SGLang,
`_torch/pyexecutor/kv_cache_events.py` of TensorRT-LLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.simulator.wire.hashing import HashForm

_V6 = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id")
_V7 = (*_V6, "medium")
_V8 = (*_V7, "lora_name")
_V9 = (*_V8, "extra_keys")
_V10 = (*_V9, "group_idx")
_V12 = (*_V10, "kv_cache_spec_kind", "kv_cache_spec_sliding_window")
_V26 = (*_V12, "locality")
_V29 = (*_V26, "ownership")
_V30 = (*_V29, "session_id")
_V33 = (*_V30, "lookahead_token_ids")

_R2 = ("block_hashes",)
_R3 = (*_R2, "medium")
_R4 = (*_R3, "group_idx")

_VLLM_REQUIRED = frozenset(_V8)
_SGLANG_REQUIRED = frozenset(_V6)


@dataclass(frozen=True, slots=True)
class Era:
    """One wire format: everything that differs between releases of one engine."""

    name: str
    engine: Literal["vllm", "sglang", "trtllm"]
    stored_fields: tuple[str, ...]
    removed_fields: tuple[str, ...]
    as_map: bool = False
    """Events are maps without the fields that hold their default; otherwise arrays of full length."""
    required: frozenset[str] = _VLLM_REQUIRED
    """Fields that a map carries even when they are nil."""
    has_rank: bool = True
    hash_form: HashForm = "uint64"
    replay_frames: Literal[2, 3] = 2
    cpu_medium: str = "CPU"
    cpu_block_size_known: bool = False
    """CPU placeholders carry the block size; else 0."""
    cpu_group_known: bool = False
    cpu_hashes_apart: bool = False
    """CPU placeholders carry one hash per event; else one list."""
    one_block_stored: bool = False
    """Each block has a BlockStored of its own (SGLang before 0.5.20)."""

    @property
    def media_known(self) -> bool:
        """Whether the era can distinguish the GPU from other tiers."""
        return "medium" in self.stored_fields

    @property
    def groups_known(self) -> bool:
        """Whether the era can distinguish KV cache groups (needed by hybrid engines)."""
        return "group_idx" in self.stored_fields


def _vllm_map(name: str, stored_fields: tuple[str, ...], replay_frames: Literal[2, 3]) -> Era:
    return Era(
        name,
        "vllm",
        stored_fields,
        _R4,
        as_map=True,
        replay_frames=replay_frames,
        cpu_group_known=True,
        cpu_hashes_apart=True,
    )


_ALL = (
    Era("vllm-0.9.0", "vllm", _V6, _R2, has_rank=False, hash_form="int64"),
    Era("vllm-0.9", "vllm", _V6, _R2, hash_form="int64"),
    Era("vllm-0.10", "vllm", _V7, _R3, cpu_block_size_known=True, hash_form="mixed"),
    Era("vllm-0.14", "vllm", _V8, _R3, cpu_block_size_known=True, hash_form="mixed"),
    Era("vllm-0.17", "vllm", _V9, _R3, cpu_block_size_known=True, hash_form="mixed"),
    Era("vllm-0.20", "vllm", _V10, _R4, hash_form="mixed"),
    Era("vllm-0.22", "vllm", _V12, _R4, hash_form="mixed"),
    _vllm_map("vllm-0.24", _V12, 2),
    _vllm_map("vllm-0.26", _V26, 3),
    _vllm_map("vllm-0.29", _V29, 3),
    _vllm_map("vllm-0.30", _V30, 3),
    _vllm_map("vllm-0.33", _V33, 3),
    Era("sglang-0.5.6", "sglang", _V6, _R2, hash_form="int64", one_block_stored=True),
    Era(
        "sglang-0.5.15",
        "sglang",
        _V7,
        _R3,
        hash_form="int64",
        cpu_medium="CPU_PINNED",
        cpu_block_size_known=True,
        one_block_stored=True,
    ),
    Era(
        "sglang-0.5.23",
        "sglang",
        (*_V7, "cache_salt", "session_id", "lora_name"),
        _R3,
        as_map=True,
        required=_SGLANG_REQUIRED,
        hash_form="int64",
        replay_frames=3,
        cpu_medium="CPU_PINNED",
        cpu_block_size_known=True,
    ),
    Era("trtllm-1.3", "trtllm", (*_V8, "mm_keys"), _R3, as_map=True, hash_form="uint64", replay_frames=3),
)

ERAS: dict[str, Era] = {era.name: era for era in _ALL}
"""By name: the first release that wrote this format."""

DEFAULT_ERA = "vllm-0.33"
