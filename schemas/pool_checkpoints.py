"""State of the pools of a source, as its base holds it: blocks, flows, two granularities, objects."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.events import (
    BlockSize,
    GroupIdx,
    PackedHash,
    Text,
)
from schemas.residency import LATEST_CHANGE

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Hash = Annotated[int, Meta(ge=0)]
Moment = Annotated[float, Meta(ge=0, le=LATEST_CHANGE)]
"""Seconds since the epoch, event time."""
Histogram = Annotated[list[Natural], Meta(max_length=36)]

LongHistogram = Annotated[list[Natural], Meta(max_length=64)]


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
    repeats: bool = False
    """What they hold was taken for repetitions and does not count, unless a removal proves that these were
    copies: how many, and when the first of them came."""


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
    """Whether a store was taken for a repetition since the pool was cleared last. Where no entries tell of
    which blocks, nobody remembers."""


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
