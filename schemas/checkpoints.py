"""Records of `kvlens.checkpoints.replica.v1`: what the replica agent needs to continue after a crash.

Every record's key is `slot_key(...)`. A source has a `head` (always current), a `base` and up to
DELTA_SLOTS deltas. The head names the epoch and how many deltas belong to it; records of other epochs are
leftovers of compaction and ignored. The records of one checkpoint, the outputs and the source offset commit
in one Kafka transaction.
"""

from __future__ import annotations

import msgspec

META_KEY = b"@meta"
"""Key of the `PartitionMeta`."""
HEAD = "head"
BASE = "base"
DELTA_SLOTS = 32


def slot_key(replica: str, dp_rank: int, slot: str | int) -> bytes:
    """Return the record key of a source's HEAD, BASE, or delta number 1..DELTA_SLOTS."""
    return msgspec.msgpack.encode((replica, dp_rank, slot))


class PartitionMeta(msgspec.Struct, omit_defaults=True, gc=False):
    """Where a partition stands."""

    next_offset: int


class PoolEntries(msgspec.Struct, omit_defaults=True, gc=False):
    """Entries of one medium and group: all of them (base) or those that changed (delta).

    Columns of m entries, little-endian: hashes u64, copies i32 (0: gone), births f64 (seconds since the
    epoch), block sizes u32.
    """

    medium: str
    group_idx: int
    hashes: bytes
    copies: bytes
    births: bytes
    block_sizes: bytes


class PoolsRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """The base or one delta of a source."""

    epoch: int
    pools: list[PoolEntries]


class FlowState(msgspec.Struct, array_like=True, gc=False):
    """Counters and lifetimes of the open window of one pool (`pipeline.residency.flow`)."""

    counts: list[int]
    lifetimes: list[int]


class PoolHead(msgspec.Struct, omit_defaults=True, gc=False):
    """What is known of one medium and group besides its entries."""

    medium: str
    group_idx: int
    block_sizes: list[int]
    entries: list[int]
    """Physical copies per block size."""
    blocks: list[int]
    """Distinct blocks per block size."""
    removed: list[int]
    """Copies removed by the engine, per block size."""
    several_hashes: list[bool]
    """Whether one event announced several blocks, per block size."""
    flow: FlowState
    store_only: bool = False
    removes: bool = False
    early_stores: list[tuple[bytes | None, bytes]] = []
    """(parent, hashes) of the first stores of a pool nothing was removed from yet."""
    other_sizes: dict[int, list[int]] = {}
    """Hash to the block sizes of copies beyond the first that differ from the entry's."""
    granular: bytes = b""
    """The whole of a group with two granularities (`pipeline.residency.granularity`)."""


class TrustState(msgspec.Struct, array_like=True, gc=False):
    """A trust and the event time since when."""

    trust: str
    since: float


class HealthState(msgspec.Struct, omit_defaults=True, gc=False):
    """Stream health of the open window."""

    batches: int = 0
    events: int = 0
    duplicate_batches: int = 0
    gap_batches: int = 0
    replayed_batches: int = 0
    lost_batches: int = 0
    undecodable_events: int = 0
    restarts: int = 0
    lag_seconds: float = 0.0


class SourceHead(msgspec.Struct, omit_defaults=True, gc=False):
    """Everything about one source but its entries."""

    replica: str
    dp_rank: int
    model: str
    hash_domain: str
    tenant: str
    incarnation: int
    epoch: int
    deltas: int
    first_seq: int
    last_seq: int
    opened_at: float
    closed_at: float | None
    closed_reason: str
    engine: str
    wire_era: str
    trust: TrustState
    trust_by_medium: dict[str, TrustState]
    window: int | None
    """Number of the open window; None before the first batch."""
    carried_to: int | None
    """Last window for which rows were written."""
    version: int
    """Offset of the last events record of this source."""
    health: HealthState
    capacity_blocks: int
    pools: list[PoolHead]
