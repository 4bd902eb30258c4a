"""Records of `kvlens.checkpoints.replica.v1`: what the replica agent needs to continue after a crash.

Key `@meta` holds `PartitionMeta`. Every source has one `base` slot and up to `DELTA_SLOTS` delta
slots; a delta belongs to the base of the same epoch, and deltas of older epochs are ignored. The
records of one checkpoint, the outputs and the source offset commit in one Kafka transaction.
"""

from __future__ import annotations

import msgspec

META_KEY = b"@meta"
DELTA_SLOTS = 32


class PartitionMeta(msgspec.Struct, omit_defaults=True, gc=False):
    """Where a partition stands."""

    next_offset: int
    """Offset of the first events record that is not yet in the state."""
    shards: int
    """Partitions of the residency topic when this was written."""


class PoolState(msgspec.Struct, omit_defaults=True, gc=False):
    """Entries of one medium and group: all of them (base) or those that changed (delta).

    Columns of m entries, little-endian: hashes u64, copies u32 (0 = gone), births f64 (seconds), block
    sizes u32.
    """

    medium: str
    """Canonical medium, e.g. `gpu`, `cpu`."""
    group_idx: int
    """KV-cache group of a hybrid engine; 0 where there is only one."""
    hashes: bytes
    """m little-endian u64."""
    copies: bytes
    """m little-endian u32: physical copies; 0 means gone (deltas only)."""
    births: bytes
    """m little-endian f64: seconds since the epoch when the first copy came."""
    block_sizes: bytes
    """m little-endian u32: tokens per block."""
    extra: bytes = b""
    """Opaque to other readers: bookkeeping of granularities (`pipeline.residency`)."""


class CheckpointRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One slot of one source."""

    epoch: int
    """Grows with every new base of the source."""
    delta: int
    """0 for the base, then 1, 2, ... without holes."""
    pools: list[PoolState]
    """One entry per medium and group."""
    head: bytes
    """Everything else about the source (identity, position, trust, open windows), msgpack."""
