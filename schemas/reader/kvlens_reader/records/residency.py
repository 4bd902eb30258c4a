# Copied from schemas/residency.py by `python -m pipeline.generated`.
"""Records of `kvlens.residency.v1`: changes of residency in one shard of the hash space.

Only real changes: a block's first copy came (0 → 1) or its last copy left (1 → 0). Columns are
packed, so a reader can apply a record with one vector operation per column.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvlens_reader.records.events import LATEST, DpRank, GroupIdx, Incarnation, LongName, Name, Text
from kvlens_reader.records.trust import Trust

LATEST_CHANGE = LATEST + 366 * 86_400
"""Seconds since the epoch: events may be a little ahead of the clock that received them."""
Tokens = Annotated[int, Meta(ge=0, le=2**62)]

PartitionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Time = Annotated[float, Meta(ge=0, le=LATEST_CHANGE)]

FILLED = 0
"""First copy came: computed for a prompt, brought from elsewhere, or nobody knows."""
EVICTED = 1
"""Last copy was removed by the engine."""
CLEARED = 2
"""Lost by a clear or a restart."""
EXPIRED = 3
"""Dropped: a fine-grained block that no event will remove reached its age limit."""
SUBSUMED = 4
"""A fine-grained block now counts as part of the coarse block that covers it."""
GENERATED = 5
"""First copy came: decoding completed the block (docs/figures.md)."""
RETURNED = 6
"""It seemed to have left and is resident: a later removal showed a second copy (docs/exactness.md)."""
FILLS = bytes((FILLED, GENERATED, RETURNED))
"""Kinds of what came."""
FILL_KINDS = tuple(FILLS)
"""The same for compiled code."""
KINDS = bytes((*FILLS, EVICTED, CLEARED, EXPIRED, SUBSUMED))


class ResidencyChanges(msgspec.Struct, omit_defaults=True, gc=False):
    """m changes of one medium and group, in order of occurrence."""

    medium: Text
    """Canonical medium, e.g. `gpu`, `cpu`."""
    group_idx: GroupIdx
    """KV-cache group of a hybrid engine; 0 where there is only one."""
    hashes: bytes
    """m packed hashes, big-endian u64."""
    kinds: bytes
    """m bytes: FILLED, GENERATED, RETURNED, EVICTED, CLEARED, EXPIRED or SUBSUMED."""
    times: bytes
    """m little-endian f64: seconds since the epoch, event time."""
    block_sizes: bytes
    """m little-endian u32: tokens per block."""
    stored: bytes = b""
    """m little-endian u32: tokens stored in this medium and group of the source before each change, all
    copies counted, minus `stored_before`; empty if unknown."""
    stored_before: Tokens = 0
    """Tokens stored there before the first of these changes, since the pipeline knows the source."""
    store_only: bool = False
    """The engine does not announce removals on this medium: filled blocks may be gone."""
    roots: bytes = b""
    """For each fill (FILLED, GENERATED or RETURNED), the packed hash of the first block of its chain, zeros
    if unknown; empty if it is unknown for all."""
    depths: bytes = b""
    """For each fill, little-endian u16: blocks of the chain up to and including it, 65,535 at most;
    0 if its root is unknown. Empty if `roots` is."""
    loras: list[Text] = []
    """Adapters that blocks filled here belong to."""
    lora_codes: bytes = b""
    """For each fill, little-endian u16: the number of its adapter in `loras`, from 1, or 0; empty
    if none has one."""
    ends: bytes = b""
    """For each fill of a source that receives KV, or may, the packed hash of the last block of the run of its
    chain that was stored at once. Zeros where it came alone; empty for other sources."""


class SourceChanges(msgspec.Struct, omit_defaults=True, gc=False):
    """What changed in one engine session between two checkpoints, in one shard."""

    replica: Name
    """Replica id."""
    model: Name
    """Model the replica serves."""
    hash_domain: LongName
    """Hashes compare only inside one."""
    dp_rank: DpRank
    """Data-parallel rank."""
    incarnation: Incarnation
    """Engine session that the changes belong to, as in `EventsRecord`."""
    trust: Trust
    """Trust of the source as a whole when the checkpoint was cut."""
    changes: list[ResidencyChanges]
    """One entry per medium and group with changes."""
    receives: bool = False
    """Whether KV that others computed may be among what came: the engine counted transferred tokens in this
    session, or it does not say and its role is `decode` or `both`; never where the role is `prefill`."""
    undecided: bool = False
    """Whether `receives` is true of these changes is not known yet: the next entry of the source without this
    says it, perhaps without changes."""


class Decisions(msgspec.Struct, omit_defaults=True, gc=False):
    """What the last blocks of n runs of sources that receive KV say; n is 0 where a shard only reports how
    far it is."""

    shard: PartitionNumber
    """Where these last blocks are."""
    decided_to: Annotated[float, Meta(ge=0, le=LATEST_CHANGE)]
    """Event time up to which this shard has decided."""
    runs: bytes
    """n little-endian u64, made of the last block, event time, source, session and group of each run."""
    known: bytes
    """n bytes: 1 where the last block was stored before, by any source, so that the run was transferred."""


class ResidencyRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """All changes in one shard (high bits of the hash) between two checkpoints of an events partition.

    Several records with the same `next_offset` share a large checkpoint; the changes of a source keep their
    order.
    """

    partition: PartitionNumber
    """Partition of the events topic that the sources are in."""
    shard: PartitionNumber
    """Partition of this topic: hash * number of partitions >> 64."""
    next_offset: int
    """Offset in the events partition up to which (exclusive) changes are included."""
    sources: list[SourceChanges]
    """One entry per engine session that changed, of one source oldest first. None in a record that only says
    how far its partition is read."""
    partitions: PartitionNumber = 0
    """Partitions of the events topic; 0: no other partition has to be waited for."""
    read_to: Time = 0.0
    """Time in the log up to which the partition is read and said, this record included; 0: more of the same
    checkpoint follows, or nobody knows."""
    clock_offset: Annotated[float, Meta(ge=-LATEST, le=0)] | None = None
    """Greatest event time minus time of receipt of the sources that changed since the checkpoint before, 0 at
    most; None if none did."""
    decisions: Decisions | None = None
    """What another shard decided, in a record of its own: its `partition` is that shard."""
