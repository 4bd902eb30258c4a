"""Records of `kvlens.residency.v1`: changes of residency of one source, for one shard of the hash space.

Only real changes: a block's first copy came (0 → 1) or its last copy went (1 → 0). Columns are
packed so that a reader can apply a record with one vector operation per column.
"""

from __future__ import annotations

from typing import Literal

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
    group_idx: int
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
    model: str
    hash_domain: str
    dp_rank: int
    incarnation: int
    shard: int
    source_offset: int
    """Offset in the events topic up to which (exclusive) changes are included."""
    trust: Trust
    changes: list[ResidencyChanges]
    lost_incarnation: int | None = None
    """All blocks of this earlier incarnation are gone; applies before `changes`."""
    loss: Literal["cleared", "closed"] | None = None
