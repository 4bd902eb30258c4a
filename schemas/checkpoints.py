"""Records of `kvlens.checkpoints.replica.v1`: what the replica agent needs to continue after a crash.

Of each source there is a base: its head, and in parts the entries of its blocks, as they are after some
record of the events topic. It is written anew when much has changed since, so a source has a base of a moment
of its own. META says up to which record everything is committed, and from which one on each base lacks
something. Whoever continues loads the bases and applies the records from the first of those on once more, to
each source those that its base lacks. The record under BASE is written last, and the base before keeps its
parts until then. The records of one checkpoint, the outputs and the source offset commit in one Kafka
transaction.

The agent works on the very `SourceHead` that a base holds: to save it is to encode it. Only the entries of
blocks are kept in another form, and travel as columns.
"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.events import (
    LATEST,
    MOST_REMARKS,
    BlockSize,
    DpRank,
    Incarnation,
    LongName,
    Name,
    Text,
)
from schemas.pool_checkpoints import Moment, Natural, ObjectPool, PoolEntries, PoolHead
from schemas.residency import LATEST_CHANGE
from schemas.trust import Trust

Number = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
"""Of a batch; -1 before the first one."""
WindowNumber = Annotated[int, Meta(ge=0, le=LATEST_CHANGE // 10)]
Lag = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Offset = Annotated[float, Meta(ge=-LATEST, le=366 * 86_400)]
"""Of one clock from another, in seconds."""

META_KEY = b"@meta"
"""Key of the `PartitionMeta`."""
BASE = "base"
NO_BASE = -1
"""Instead of the number of a base."""
FORMAT = 5
"""Of the checkpoints that this kvlens writes, and the only one that it reads."""


def slot_key(replica: str, dp_rank: int, slot: str | int) -> bytes:
    """Return the record key of a source's BASE, or of a part of it."""
    return msgspec.msgpack.encode((replica, dp_rank, slot))


TOPICS_KEY = slot_key("@topics", 0, 0)
"""Key of the `StateTopics`: a slot that no source has, so versions that do not know it leave it alone."""


def part_slot(number: int, part: int) -> str:
    """Return the slot of a part of base `number`, from 0; the base before has others."""
    return f"{BASE}.{number % 2}.{part}"


class StateTopics(msgspec.Struct, gc=False):
    """Topics that the state of a partition is of: read up to its offset, or known by what follows from them.

    Offsets say nothing in another topic, also one of the same name that is made after the first was deleted.
    """

    ids: dict[str, str]
    """By name: the id that Kafka gave the topic when it was made (KIP-516), as its own tools print it."""


class CheckpointFormat(msgspec.Struct):
    """What is looked at first, whatever else the record holds."""

    format: int = 1
    """Of the checkpoint that the record belongs to."""


class SourceAtCut(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a source was at the last cut, as far as neither its base nor the events topic says so."""

    replica: Name
    """Replica id."""
    dp_rank: DpRank
    """Data-parallel rank."""
    clock: Moment
    """Where the clock of the partition stood at its last record (`pipeline.residency.silence`)."""
    received_at: Moment
    """Latest receipt of the last batch of its records, seconds since the epoch; 0 while that is not known."""
    carried_to: WindowNumber | None
    """Last window whose rows show the state as it is."""
    written_to: WindowNumber | None
    """Last window for which rows were ever written; those behind `carried_to` show an older state."""
    base: Number
    """Number of its base; NO_BASE: it has none."""
    lacks: Natural | None
    """Offset of the first events record that its base lacks; None: it lacks none."""


class Forgotten(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A source of which nothing is kept."""

    replica: Name
    """Replica id."""
    dp_rank: DpRank
    """Data-parallel rank."""
    offset: Natural
    """Of the first events record that it may have come back with."""


class PartitionMeta(msgspec.Struct, omit_defaults=True, gc=False):
    """Where a partition stands."""

    next_offset: Natural
    """Offset of the first events record of which nothing is committed."""
    format: int = 1
    """Format of the checkpoint, which is looked at first."""
    clock: Moment = 0.0
    """Seconds that have gone by in the partition's log (`pipeline.residency.silence`)."""
    sources: list[SourceAtCut] = []
    """All sources there are, in the order in which they came."""
    forgotten: list[Forgotten] = []
    """Sources that were forgotten behind the first record that some base lacks."""


class TrustSince(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A trust and the event time since when."""

    trust: Trust
    """complete, partial or degraded."""
    since: Moment
    """Seconds since the epoch."""


class TrustState(msgspec.Struct, omit_defaults=True, gc=False):
    """Trust of every medium of a source; media that are not named share one value."""

    general: TrustSince
    """Of all media that `by_medium` does not name."""
    by_medium: dict[str, TrustSince] = {}
    """Where a medium differs."""
    passed: dict[str, TrustSince] = {}
    """The worst trust left behind in the open window, by medium; empty name: of all others."""


class HealthState(msgspec.Struct, omit_defaults=True, gc=False):
    """Stream health of the open window."""

    batches: Natural = 0
    """Batches applied."""
    events: Natural = 0
    """Engine events in them."""
    duplicate_batches: Natural = 0
    """Batches that came again and were ignored."""
    gap_batches: Natural = 0
    """Batches missing when they were due."""
    replayed_batches: Natural = 0
    """Batches that came by replay."""
    lost_batches: Natural = 0
    """Batches that will never come."""
    undecodable_events: Natural = 0
    """Events, whole frames or whole records, that could not be understood."""
    restarts: Natural = 0
    """Engine restarts seen."""
    lag_seconds: Lag = 0.0
    """Largest received_at - ts of live batches."""


class ConnectivityState(msgspec.Struct, omit_defaults=True, gc=False):
    """When and how a source was heard last."""

    last_batch_at: Moment | None = None
    """Event time of the last batch of this session, seconds since the epoch; None before the first one."""
    seen_live: bool = False
    """Whether a batch of this session came live."""
    clock_offset: Offset = 0.0
    """Event time minus time of receipt of the last live batch, seconds."""
    disconnected_from: WindowNumber | None = None
    """First window whose end found the source disconnected; None while it is connected."""
    reported_to: WindowNumber | None = None
    """Latest window in which the connector reported that it does not reach the source; None while it does."""


class DriftState(msgspec.Struct, omit_defaults=True, gc=False):
    """Comparison of a source with what its engine says of its memory."""

    capacity_blocks: Natural = 0
    """Most GPU blocks that the engine reported in this session; 0 when unknown."""
    block_size: BlockSize = 0
    """Tokens per GPU block as the engine reported it in this session; 0 when unknown."""
    unused_blocks: Natural = 1
    """Of the capacity, blocks that are never cached."""
    since: WindowNumber | None = None
    """First of the closed windows in a row that ended with more blocks resident than the engine has."""


class SourceHead(msgspec.Struct, omit_defaults=True, gc=False):
    """Everything about one source but its entries."""

    replica: Name
    """Replica id."""
    dp_rank: DpRank
    """Data-parallel rank."""
    trust: TrustState
    """How complete the knowledge of its residency is."""
    health: HealthState
    """Counts of the open window."""
    connectivity: ConnectivityState
    """When and how the source was heard last."""
    drift: DriftState
    """Comparison with what the engine says of its memory."""
    model: Name = ""
    """Model name."""
    hash_domain: LongName = ""
    """model/hash scheme/tenant."""
    tenant: Name = ""
    """From the replica's configuration."""
    incarnation: Incarnation = 0
    """The present engine session."""
    spread: Natural = 0
    """Factor that spreads hashes over a table, a secret of the source."""
    first_seq: Number = -1
    """First sequence number of this session; -1 before the first batch."""
    last_seq: Number = -1
    """Last sequence number applied; -1 before the first batch."""
    passed_over: Natural = 0
    """Batches right after `last_seq` that came but could not be understood; each may come again, and be."""
    opened_at: Moment = 0.0
    """Seconds since the epoch."""
    closed_at: Moment | None = None
    """Seconds since the epoch; None while the session is open."""
    closed_reason: Name = ""
    """Empty while the session is open."""
    engine: Name = ""
    """Name of the engine, e.g. `vllm`; empty while no event has shown which it is."""
    wire_era: Name = ""
    """How the engine encodes."""
    may_reannounce: bool | None = None
    """Whether the engine may announce residents again, by its latest record; None while no record has it."""
    copies_proved: bool = False
    """Whether a removal proved in this session that stores which seemed to repeat others were copies."""
    one_copy: bool = False
    """Whether the engine knows at most one copy of each block."""
    clears_all: bool | None = None
    """Whether clears that name no medium are of all, by its latest record; None while no record has it."""
    role: Name = ""
    """As its latest record has it."""
    transferred: bool | None = None
    """Whether the engine counted transferred tokens in this session; None: it does not say, or has computed
    too little so far."""
    counts_transfers: bool = False
    """Whether its pages ever had a count of transferred tokens."""
    undecided: bool = False
    """Whether changes were told of which it is not decided whether the source receives KV."""
    window: WindowNumber | None = None
    """Number of the open window; None before the first batch."""
    carried_to: WindowNumber | None = None
    """Last window whose rows show the state as it is."""
    written_to: WindowNumber | None = None
    """Last window for which rows were ever written; those behind `carried_to` show an older state."""
    version: Natural = 0
    """Offset of the last events record that changed what rows show."""
    capacity_blocks: Natural = 0
    """GPU blocks the engine reported; 0 when unknown."""
    cpu_capacity_tokens: Natural = 0
    """Tokens of the CPU tier, as the engine reported it; 0 when unknown."""
    pools: list[PoolHead] = []
    """One entry per medium and group."""
    objects: list[ObjectPool] = []
    """One entry per medium and group of which objects came."""
    capacity_bytes: dict[Text, Natural] = {}
    """Bytes that the publisher declared, by medium."""
    loras: Annotated[list[Name], Meta(max_length=(1 << 16) - 1)] = []
    """Adapters of this session by code, from 1."""
    limited: bool = False
    """Whether something of this session was left out because of a limit."""
    remarks: Annotated[list[Name], Meta(max_length=MOST_REMARKS)] = []
    """What is unusual about the stream of this session."""


class BasePart(msgspec.Struct, omit_defaults=True, gc=False):
    """Some of a base."""

    number: Natural
    """That of the base."""
    head: bytes = b""
    """Some bytes of the encoded `SourceHead`, where it is large."""
    pools: list[PoolEntries] = []
    """Some of the entries."""


class SourceBase(msgspec.Struct, omit_defaults=True, gc=False):
    """A source as it is after the records before an offset."""

    next_offset: Natural
    """Offset of the first events record that it does not include."""
    number: Natural
    """Counts bases of the source; one whose entries are those of the last one has its number, and parts."""
    parts: Natural
    """Records that come before this one."""
    head: SourceHead | None = None
    """Everything but entries; None: in the parts."""
