"""Shapes of what engines publish: envelopes and events, with every value left undecoded.

Positions and names come from vLLM's `distributed/kv_events.py` (0.9 to 0.33) and SGLang's
`disaggregation/kv_events.py` (0.4 to 0.5.23): arrays `["BlockStored", field, ...]` grew at the end over
time, maps `{"type": "BlockStored", ...}` followed. Fields are in wire order, which is what makes map
decoding fast. Token ids, salts and multimodal keys are never named here where a map can skip them, and
stay undecoded where a position must be kept.
"""

from msgspec import Raw, Struct

ABSENT = Raw()
"""Stands for a field that the event does not have; no MessagePack value is empty."""


class EnvelopeArray(Struct, array_like=True, gc=False):
    """`[ts, events, data_parallel_rank, ...]`."""

    ts: Raw
    events: Raw


class EnvelopeMap(Struct, gc=False):
    """`{"ts": ..., "events": ..., ...}`."""

    ts: Raw
    events: Raw


class EventMap(Struct, gc=False):
    """Any event in map form."""

    type: Raw = ABSENT
    block_hashes: Raw = ABSENT
    parent_block_hash: Raw = ABSENT
    block_size: Raw = ABSENT
    lora_id: Raw = ABSENT
    medium: Raw = ABSENT
    lora_name: Raw = ABSENT
    group_idx: Raw = ABSENT
    kv_cache_spec_kind: Raw = ABSENT
    kv_cache_spec_sliding_window: Raw = ABSENT
    session_id: Raw = ABSENT


BLOCK_STORED = "BlockStored"
BLOCK_REMOVED = "BlockRemoved"
ALL_BLOCKS_CLEARED = "AllBlocksCleared"

STORED_REQUIRED = 5
"""Least length of a BlockStored array: type, block_hashes, parent_block_hash, token_ids, block_size."""
REMOVED_REQUIRED = 2
"""Least length of a BlockRemoved array: type, block_hashes."""
