"""Shapes of what engines publish: envelopes and events, with every value left undecoded.

Positions and names come from vLLM's `distributed/kv_events.py` (0.9 to 0.33) and SGLang's
`disaggregation/kv_events.py` (0.4 to 0.5.23): arrays `["BlockStored", field, ...]` grew at the end over
time, maps `{"type": "BlockStored", ...}` followed. Fields are in wire order, which is what makes map
decoding fast. Token ids, salts and multimodal keys are never named here where a map can skip them, and
stay undecoded where a position must be kept.
"""

from typing import Annotated

from msgspec import Meta, Raw, Struct

BLOCK_STORED = "BlockStored"
BLOCK_REMOVED = "BlockRemoved"
ALL_BLOCKS_CLEARED = "AllBlocksCleared"

MAX_BLOCK_SIZE = (1 << 32) - 1
MAX_GROUP_IDX = (1 << 16) - 1

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


STORED_REQUIRED = 5
"""Least length of a BlockStored array: type, block_hashes, parent_block_hash, token_ids, block_size."""
REMOVED_REQUIRED = 2
"""Least length of a BlockRemoved array: type, block_hashes."""


Hash = int | bytes
BlockSize = Annotated[int, Meta(ge=0, le=MAX_BLOCK_SIZE)]
GroupIdx = Annotated[int, Meta(ge=0, le=MAX_GROUP_IDX)]


class Metadata(Struct, gc=False):
    """What SGLang 0.5.18 sends in the place of vLLM's `lora_name`; nothing in it is for us."""


class StoredArray(Struct, tag=BLOCK_STORED, array_like=True, gc=False):
    """A well-formed BlockStored in array form."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: Raw
    block_size: BlockSize
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | Metadata | None = None
    extra_keys: Raw = ABSENT
    group_idx: GroupIdx | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class RemovedArray(Struct, tag=BLOCK_REMOVED, array_like=True, gc=False):
    """A well-formed BlockRemoved in array form."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: GroupIdx | None = None


class ClearedArray(Struct, tag=ALL_BLOCKS_CLEARED, array_like=True, gc=False):
    """AllBlocksCleared in array form."""


class StoredMap(Struct, tag=BLOCK_STORED, gc=False, kw_only=True):
    """A well-formed BlockStored in map form."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None = None
    block_size: BlockSize
    lora_id: int | str | None = None
    medium: str | None = None
    lora_name: str | None = None
    group_idx: GroupIdx | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class StoredMapWithSession(StoredMap, tag=BLOCK_STORED, gc=False, kw_only=True):
    """The same where session ids are forwarded."""

    session_id: str | None = None


class RemovedMap(Struct, tag=BLOCK_REMOVED, gc=False):
    """A well-formed BlockRemoved in map form."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: GroupIdx | None = None


class ClearedMap(Struct, tag=ALL_BLOCKS_CLEARED, gc=False):
    """AllBlocksCleared in map form."""


class ArrayBatch(Struct, array_like=True, gc=False):
    """A batch of well-formed events in array form."""

    ts: float
    events: list[StoredArray | RemovedArray | ClearedArray]


class MapBatch(Struct, array_like=True, gc=False):
    """A batch of well-formed events in map form."""

    ts: float
    events: list[StoredMap | RemovedMap | ClearedMap]


class MapBatchWithSessions(Struct, array_like=True, gc=False):
    """The same where session ids are forwarded."""

    ts: float
    events: list[StoredMapWithSession | RemovedMap | ClearedMap]
