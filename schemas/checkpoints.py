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
    GroupIdx,
    Incarnation,
    LongName,
    Name,
    PackedHash,
    Text,
)
from schemas.residency import LATEST_CHANGE
from schemas.trust import Trust

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Number = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
"""Of a batch; -1 before the first one."""
Hash = Annotated[int, Meta(ge=0)]
Moment = Annotated[float, Meta(ge=0, le=LATEST_CHANGE)]
"""Seconds since the epoch, event time."""
WindowNumber = Annotated[int, Meta(ge=0, le=LATEST_CHANGE // 10)]
Lag = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Offset = Annotated[float, Meta(ge=-LATEST, le=366 * 86_400)]
"""Of one clock from another, in seconds."""
Histogram = Annotated[list[Natural], Meta(max_length=36)]

LongHistogram = Annotated[list[Natural], Meta(max_length=64)]

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


class PoolEntries(msgspec.Struct, omit_defaults=True, gc=False):
    """Entries of one medium and group, or some of them.

    Columns of m entries, little-endian: hashes u64, copies i32, births f64 (seconds since the epoch), block
    sizes u32, roots u64, depths u16, contents u64. Copies and block sizes that are all the same are there
    once.
    """

    medium: Text
    """Canonical medium, e.g. `gpu`, `cpu`."""
    group_idx: GroupIdx
    """KV-cache group of a hybrid engine; 0 where there is only one."""
    hashes: bytes
    """m little-endian u64."""
    copies: bytes
    """m little-endian i32, or one: physical copies."""
    births: bytes
    """m little-endian f64: seconds since the epoch when the first copy came."""
    block_sizes: bytes
    """m little-endian u32, or one: tokens per block."""
    roots: bytes = b""
    """m little-endian u64: first block of each block's chain; 0 where that is not known. Empty: of none."""
    depths: bytes = b""
    """m little-endian u16: blocks of the chain up to and including each one, 65,535 at most. Empty with
    `roots`."""
    contents: bytes = b""
    """m little-endian u64: content hash (`schemas.hashing.content`) by which changes of residency name each
    block; 0 where its own hash does. Empty: of none."""


class FlowState(msgspec.Struct, array_like=True, gc=False):
    """What came and went in one pool in the open window; counters named as the columns of `flow_10s`."""

    stored_blocks: Natural = 0
    """Copies that came."""
    stored_tokens: Natural = 0
    """Tokens in them."""
    filled_blocks: Natural = 0
    """First copies that came."""
    removed_blocks: Natural = 0
    """Copies that the engine removed."""
    evicted_blocks: Natural = 0
    """Last copies that the engine removed."""
    evicted_tokens: Natural = 0
    """Tokens in them."""
    cleared_blocks: Natural = 0
    """Copies lost by a clear or a restart."""
    expired_blocks: Natural = 0
    """Fine blocks dropped at their age limit."""
    reannounced_blocks: Natural = 0
    """Copies announced again that were resident."""
    unknown_removed_blocks: Natural = 0
    """Removals of blocks that were not resident."""
    lifetimes: Histogram = []
    """As `lifetime_hist` of `flow_10s`."""


class CoarseBlock(msgspec.Struct, array_like=True, gc=False):
    """A resident physical block of a pool with two granularities."""

    copies: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """Physical copies."""
    birth: Moment
    """Event time of the first copy, seconds since the epoch."""
    tail: Hash | None = None
    """Hash of the last fine block it covers, once known."""


class FineBlock(msgspec.Struct, array_like=True, gc=False):
    """A block announced at the finer of two granularities."""

    parent: Hash | None
    """Hash of the fine block before it; None at the start of a sequence, and while it is not known."""
    depth: Natural | None
    """Fine blocks from the start of the sequence up to and including this one; None until looked up."""
    birth: Moment
    """Event time of the first announcement, seconds since the epoch."""
    seen: Moment
    """Event time of the last one."""
    covers: list[Hash] = []
    """Resident coarse blocks that hold its tokens: several when prompts share less than a coarse block."""


class FineStore(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A recent store of fine blocks."""

    number: Natural
    """Number of the store, counted over both granularities."""
    hashes: tuple[Hash, ...]
    """Its blocks, in order of their chain."""


class CoarseStore(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A store of coarse blocks not yet paired with fine ones."""

    number: Natural
    """Number of the store, counted over both granularities."""
    hashes: tuple[Hash, ...]
    """Its blocks, in order of their chain."""
    parent: Hash | None
    """Hash of the coarse block before the first one."""


class GranularState(msgspec.Struct, omit_defaults=True, gc=False):
    """The blocks of a pool announced at two granularities (`pipeline.residency.granularity`)."""

    coarse_size: BlockSize
    """Tokens per coarse block."""
    fine_size: BlockSize
    """Tokens per fine block."""
    coarse: dict[Hash, CoarseBlock] = {}
    """Resident coarse blocks by hash."""
    fine: dict[Hash, FineBlock] = {}
    """Fine blocks by hash."""
    stores: Natural = 0
    """Stores seen, which numbers them."""
    fine_stores: list[FineStore] = []
    """The most recent ones, oldest first."""
    coarse_stores: list[CoarseStore] = []
    """The most recent of those not yet paired, oldest first."""
    token_debt: Natural = 0
    """Tokens counted twice, still to be taken off `stored_tokens` of the flow."""
    contents: dict[Hash, Hash] = {}
    """Hash to content hash of resident blocks that came before the second granularity."""


class PoolHead(msgspec.Struct, omit_defaults=True, gc=False):
    """Facts about one medium and group, besides its entries."""

    medium: Text
    """Canonical medium, e.g. `gpu`, `cpu`."""
    group_idx: GroupIdx
    """KV-cache group of a hybrid engine; 0 where there is only one."""
    flow: FlowState
    """Counts of the open window."""
    block_sizes: list[BlockSize] = []
    """Tokens per block of each granularity seen."""
    entries: list[Natural] = []
    """Physical copies per block size."""
    blocks: list[Natural] = []
    """Distinct blocks per block size (that of the first copy)."""
    removed: list[Natural] = []
    """Copies removed by the engine, per block size."""
    several_hashes: list[bool] = []
    """Whether one event announced several blocks, per block size."""
    stored_tokens: Natural = 0
    """Tokens of all copies that ever came, also in earlier engine sessions."""
    store_only: bool = False
    """The engine never announces removals on this medium."""
    removes: bool = False
    """Whether a removal was ever seen."""
    early_stores: list[tuple[PackedHash | None, bytes]] = []
    """(parent, hashes) of the first stores of a pool nothing was removed from yet."""
    other_sizes: dict[Hash, list[BlockSize]] = {}
    """Hash to the block sizes of copies beyond the first that differ from the entry's, oldest first."""
    granular: GranularState | None = None
    """The blocks of a pool with two granularities, which has no entries; None of any other."""
    spec_kind: Text = ""
    """Kind of attention of the group as the engine calls it; empty where it does not say."""
    sliding_window: Natural = 0
    """Tokens that a sliding-window group looks back; 0: it is none, or the engine does not say."""
    repeats: bool = False
    """Whether a store was taken for a repetition since the pool was cleared last."""


class ObjectState(msgspec.Struct, array_like=True, gc=False):
    """A block that is held and whose publisher says its bytes."""

    size: Natural
    """Bytes."""
    tokens: BlockSize
    """Tokens; 0 when unknown."""
    used_at: Moment
    """Event time at which it came or was accessed last, seconds since the epoch."""
    used: Natural
    """Uses of the medium are numbered: the last one that was of this object."""
    accesses: Natural = 0
    """Since it came."""


class ObjectFlow(msgspec.Struct, array_like=True, gc=False):
    """How objects of one pool were used in the open window; named as the columns of `objects_10s`."""

    stored_objects: Natural = 0
    """Objects that came and were not held."""
    stored_bytes: Natural = 0
    """Bytes in them."""
    accesses: Natural = 0
    """Uses of objects that were held."""
    accessed_tokens: Natural = 0
    """Tokens in them."""
    accessed_bytes: Natural = 0
    """Bytes in them."""
    hits: Natural = 0
    """Accesses that are one request each."""
    hit_tokens: Natural = 0
    """Tokens in them."""
    hit_bytes: Natural = 0
    """Bytes in them."""
    first_accesses: Natural = 0
    """First ones of their objects."""
    unknown_accesses: Natural = 0
    """Uses of objects that are not known."""
    unlisted_objects: Natural = 0
    """Stores beyond the limit."""
    uses_hist: LongHistogram = []
    """As the column."""
    reuse_hist: LongHistogram = []
    """As the column."""
    needed_hist: LongHistogram = []
    """As the column."""


class ObjectPool(msgspec.Struct, omit_defaults=True, gc=False):
    """Objects of one medium and group."""

    medium: Text
    """Canonical medium."""
    group_idx: GroupIdx
    """Group of the objects."""
    flow: ObjectFlow
    """Counts of the open window."""
    held: dict[Hash, ObjectState] = {}
    """By hash."""


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
    """Batches after `last_seq` that came but could not be understood."""
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
