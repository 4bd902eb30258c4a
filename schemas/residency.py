"""Records of `kvlens.residency.v1`: changes of residency of one source, for one shard of the hash space.

Only real changes: a block's first copy came (0 → 1) or its last copy went (1 → 0). Columns are
packed so that a reader can apply a record with one vector operation per column.
"""

from __future__ import annotations

import msgspec

from schemas.trust import Trust

Medium = str

FILLED = 0
"""First copy came."""
EVICTED = 1
"""Last copy was removed by the engine."""
CLEARED = 2
"""Lost by a clear or a restart."""
EXPIRED = 3
"""Dropped by us: a fine-grained block that no event will remove reached its age limit."""
SUBSUMED = 4
"""A fine-grained block is now counted as part of the coarse block that covers it."""


class ResidencyChanges(msgspec.Struct, omit_defaults=True, gc=False):
    """m changes of one medium and group, in order of occurrence."""

    medium: Medium
    """Canonical medium, e.g. `gpu`, `cpu`."""
    group_idx: int
    """KV-cache group of a hybrid engine; 0 where there is only one."""
    hashes: bytes
    """m packed hashes, big-endian u64."""
    kinds: bytes
    """m bytes: FILLED, EVICTED, CLEARED, EXPIRED or SUBSUMED."""
    times: bytes
    """m little-endian f64: seconds since the epoch, event time."""
    block_sizes: bytes
    """m little-endian u32: tokens per block."""


class ResidencyRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """What changed at one source between two checkpoints, in one shard (high bits of the hash)."""

    replica: str
    """Replica id."""
    model: str
    """Model name."""
    hash_domain: str
    """model/hash scheme/tenant: hashes compare only inside one domain."""
    dp_rank: int
    """Data-parallel rank; with the replica it names the source."""
    incarnation: int
    """Life of the engine in which the changes happened."""
    shard: int
    """Number of the shard, equal to the partition of this record."""
    next_offset: int
    """Offset in the events topic up to which (exclusive) changes are included."""
    trust: Trust
    """What is known about the completeness of the source."""
    changes: list[ResidencyChanges]
    """One entry per medium and group."""
