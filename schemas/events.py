"""Records of `kvlens.events.v1`: runs of consecutive batches of one source, normalised.

Map-encoded with named fields: old readers ignore fields they do not know, and new readers use defaults
for missing ones. Hashes compare only inside one `hash_domain`. Nothing here can hold a token
id, a prompt, a salt or a multimodal key.

Types carry bounds, so that nothing that decodes is too large for state or tables: readers set aside a record
with anything beyond them.
"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from msgspec import Meta

LATEST = 4_102_444_800
"""The year 2100, in seconds since the epoch: no clock is there, and tables hold a few years more."""

MOST_REMARKS = 8
"""Of one session of a source; further ones are left out."""

BlockSize = Annotated[int, Meta(ge=0, le=2**32 - 1)]
GroupIdx = Annotated[int, Meta(ge=0, le=2**16 - 1)]
DpRank = Annotated[int, Meta(ge=0, le=2**16 - 1)]
Seq = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Incarnation = Annotated[int, Meta(ge=0, le=LATEST * 10**6)]
Fingerprint = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""Of what one record has."""
Total = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""Of all that an engine ever counted."""
Timestamp = Annotated[float, Meta(ge=0, le=LATEST)]
"""Seconds since the epoch."""
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Name = Annotated[str, Meta(max_length=256)]
LongName = Annotated[str, Meta(max_length=1024)]
Text = Annotated[str, Meta(max_length=2**17)]
"""A word of the engine's own."""
EventType = Annotated[str, Meta(max_length=64, pattern="^[A-Za-z][A-Za-z0-9_]*$")]
PackedHash = Annotated[bytes, Meta(min_length=8, max_length=8)]


class Stored(msgspec.Struct, tag="stored", tag_field="type", omit_defaults=True, gc=False):
    """n blocks became resident, in chain order where the engine gives one.

    Block i ends at token `(i + 1) * block_size` of the event, and `tokens` is n * block_size.
    """

    hashes: bytes
    """n hashes (`schemas.hashes`); may be empty."""
    block_size: BlockSize
    """Tokens per block; 0: the engine does not say (placeholders of offload tiers)."""
    tokens: Total = 0
    """Tokens in all n blocks together."""
    parent: PackedHash | None = None
    """Hash of the block before the first one; None at the start of a sequence."""
    medium: Text = "gpu"
    """Canonical: gpu, cpu, disk, storage, fs, obj, external, or the raw value case-folded. `kvcr:cpu` belongs
    to the owner `kvcr`, `remote:storage` is reached by other engines as well."""
    raw_medium: Text | None = None
    """The engine's spelling, if it is not just the canonical name in capitals."""
    group_idx: GroupIdx = 0
    """KV-cache group of a hybrid engine; 0: the only one."""
    spec_kind: Text | None = None
    """Kind of attention of the group as the engine calls it, e.g. `full_attention`."""
    sliding_window: int | None = None
    """Tokens a sliding-window group looks back."""
    lora: Text | None = None
    """Adapter name the blocks belong to."""
    session: Text | None = None
    """Keyed hash of the session id of the request that stored the blocks, 16 hexadecimal digits; only with
    `connector.forward_session_ids`. Engines share blocks between sessions."""
    store_only: bool = False
    """The publisher never announces that such blocks leave this medium."""
    size_bytes: Total = 0
    """Bytes of all n blocks together; 0: the publisher does not say."""
    links: bytes = b""
    """n links (`schemas.hashing.content`): keyed hashes of what each block holds; only with
    `connector.content_hashes`. Empty where the event has nothing to compute them from."""
    salt: Text | None = None
    """Keyed hash of the request's cache salt, 16 hexadecimal digits; only with `connector.forward_salts`.
    Engines share no block between salts. SGLang sends it with every store, vLLM only with that of a prompt's
    first block, to which the others lead by `parent`."""


class Removed(msgspec.Struct, tag="removed", tag_field="type", omit_defaults=True, gc=False):
    """n physical copies left, in the engine's order; adjacent engine events are merged."""

    hashes: bytes
    """n hashes, one per physical copy; one may occur several times."""
    medium: Text = "gpu"
    raw_medium: Text | None = None
    group_idx: GroupIdx = 0


class Cleared(msgspec.Struct, tag="cleared", tag_field="type", omit_defaults=True, gc=False):
    """The engine dropped its prefix cache."""

    medium: Text | None = None
    """Canonical; empty: all of the engine's own; an owner and a colon (`kvcr:`): all of that owner; None: as
    empty if records say `clears_all`, else as the reader's settings say."""
    group_idx: GroupIdx | None = None
    """The group that was dropped; None: all."""


class Opened(msgspec.Struct, tag="opened", tag_field="type", omit_defaults=True, gc=False):
    """An engine session begins."""

    first_seq: Seq
    """Sequence number of the session's first batch in the log."""
    complete: bool
    """Whether that is the engine's first batch (seq 0)."""
    endpoint: LongName = ""
    """Where the connector reads it."""


class Gap(msgspec.Struct, tag="gap", tag_field="type", omit_defaults=True, gc=False):
    """The engine published batches `first` to `last` (inclusive), and they are lost.

    With reason `unconfirmed` both are the last batch before the notice: nothing is lost if the engine is
    still in that session.
    """

    first: Seq
    """First missing sequence number."""
    last: Seq
    """Last missing sequence number."""
    reason: Name
    """Bounded: see `schemas.reasons.GapReason`."""


class Undecodable(msgspec.Struct, tag="undecodable", tag_field="type", omit_defaults=True, gc=False):
    """`count` events, or a whole frame, were skipped because nobody could understand them."""

    reason: Name
    """Bounded: see `schemas.reasons.UndecodableReason`."""
    seq: Seq | None = None
    """None: the frame gave no sequence number."""
    count: Count = 1
    """Events, or 1 for a whole frame."""
    event_type: EventType | None = None
    """Of `unknown_type`: the type, if it is a plain name."""
    medium: Text | None = None
    """Of `unknown_type`: the medium that it names, canonical."""


class EngineCounters(msgspec.Struct, tag="engine_counters", tag_field="type", omit_defaults=True, gc=False):
    """One scrape of the engine's own metrics; None: not exported. Tokens and seconds are cumulative since the
    engine started."""

    prefix_cache_queries: Total | None = None
    """Tokens looked up in the engine's own prefix cache."""
    prefix_cache_hits: Total | None = None
    """Tokens found there."""
    external_queries: Total | None = None
    """Tokens looked up in a connector's cache (offload, shared)."""
    external_hits: Total | None = None
    """Tokens found there."""
    capacity_blocks: Total | None = None
    """GPU blocks that the engine has."""
    block_size: BlockSize | None = None
    """Tokens per GPU block."""
    kv_cache_usage: Finite | None = None
    """Share of GPU blocks in use by running requests, 0 to 1."""
    prefill_seconds: Finite | None = None
    """Time of prefill since the engine started, as the engine counts it (docs/figures.md)."""
    prefill_tokens: Total | None = None
    """Tokens of prompts computed in that time: those of no cache."""
    cpu_capacity_tokens: Total | None = None
    """Tokens that the CPU tier has room for."""
    unused_blocks: Annotated[int, Meta(ge=0, le=2**16)] | None = None
    """Of `capacity_blocks`, those that are never cached; None: one, as in vLLM."""
    computed_tokens: Total | None = None
    """Tokens of prompts that the engine computed, of all requests that have begun to answer."""
    transferred_tokens: Total | None = None
    """Tokens of prompts to come from another engine, or a store of unknown kind. They count when a request is
    admitted, also those that then fail to come."""
    reloaded_tokens: Total | None = None
    """The same from lower tiers of its own: the host's memory, disks."""
    generation_tokens: Total | None = None
    """Tokens that it generated."""


class Closed(msgspec.Struct, tag="closed", tag_field="type", omit_defaults=True, gc=False):
    """An engine session ends; blocks still resident are cleared, not evicted.

    What is on media that outlive engines (`is_kept_once`) stays where the reason is `restarted`.
    """

    reason: Name
    """Bounded: see `schemas.reasons.ClosedReason`."""


class SourceStatus(msgspec.Struct, tag="source_status", tag_field="type", omit_defaults=True, gc=False):
    """State of a source without a batch for ten seconds or more, repeated about every ten seconds.

    It distinguishes an idle engine from one that cannot be reached, and both from a connector that is gone.
    """

    connected: bool
    """Whether its event stream is connected, or the engine answered a replay request of late."""


class Capacity(msgspec.Struct, tag="capacity", tag_field="type", omit_defaults=True, gc=False):
    """How much room a medium has, as its publisher declares it."""

    medium: Text
    """Canonical."""
    capacity_bytes: Total
    """Bytes that all blocks together may take there."""


class Accessed(msgspec.Struct, tag="accessed", tag_field="type", omit_defaults=True, gc=False):
    """n objects were used, in the publisher's order; what is held stays as it is."""

    hashes: bytes
    """n hashes; one may occur several times."""
    medium: Text | None = None
    """Canonical; None: the publisher does not say."""
    raw_medium: Text | None = None
    group_idx: GroupIdx = 0
    hits: bool = False
    """Whether each is one request that found the object; else requests may count several times, or other uses
    as well."""


Event = (
    Stored
    | Removed
    | Cleared
    | Opened
    | Gap
    | Undecodable
    | EngineCounters
    | Closed
    | SourceStatus
    | Capacity
    | Accessed
)


class Batch(msgspec.Struct, array_like=True, gc=False):
    """One engine batch, or, with `seq` None, a notice of the connector."""

    seq: Seq | None
    """The engine's number of the batch."""
    ts: Finite
    """Engine clock, seconds since the epoch, at publication (connector clock for notices)."""
    received_at: Timestamp
    """Connector clock, seconds since the epoch."""
    events: list[Event]
    """In the engine's order."""
    engine_events: Count = 0
    """Events of the engine, before adjacent removals were merged."""
    replayed: bool = False
    """The batch came by replay, not live."""


class EventsRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """A run: consecutive batches of one engine session, in sequence order.

    The pair (incarnation, seq) identifies a batch of a source for ever. Readers must ignore a batch that
    comes again.
    """

    replica: Name
    """Replica id, and the record's key."""
    model: Name
    """Model name."""
    hash_domain: LongName
    """model/hash scheme/tenant: hashes compare only inside one domain."""
    dp_rank: DpRank
    """Data-parallel rank: with the replica, the source."""
    incarnation: Incarnation
    """Number of the engine session: the microsecond since the epoch at which the connector opened it; each
    session has a greater one than those before."""
    batches: list[Batch]
    """The run, in order, with notices where they belong."""
    first_seq: Seq | None = None
    """First sequence number in this record; None: it holds only notices."""
    last_seq: Seq | None = None
    """The last one."""
    tenant: Name = "default"
    """From the replica's configuration."""
    engine: Name = ""
    """Name of the engine (`connectors/engines`), e.g. `vllm`; empty: not known yet."""
    wire_era: Name = ""
    """How the engine encodes, e.g. `array-12`, `map`, `sglang-array-7`."""
    may_reannounce: bool | None = None
    """Whether the engine may announce resident blocks again without a second copy; None: not known yet."""
    duplicates: Count = 0
    """Batches dropped as already published, since the previous record of the source."""
    remarks: Annotated[list[Name], Meta(max_length=MOST_REMARKS)] = []
    """What is unusual about the stream: `schemas.reasons.Remark`s, some with a colon and what it is about."""
    last_fingerprint: Fingerprint = 0
    """Of the payload of `last_seq`, by which a later connector knows the session again."""
    one_copy: bool = False
    """Whether the engine has at most one copy of each block: stores of resident ones repeat it."""
    clears_all: bool | None = None
    """Whether a clear that names no medium is of every one; None: not known yet."""
    emitters: dict[Name, tuple[Total, Seq]] = {}
    """By publisher, where several report of the source: its session, and its last own sequence number in this
    record."""
    role: Name = ""
    """`prefill`, `decode` or `both`, as settings or labels say it; empty: nobody says."""


DECODES_SINGLY = frozenset({"vllm"})
"""Engines that announce a block which decoding completes by itself, and all that a step computes of a prompt
together. Others do not, or nobody looked (docs/figures.md)."""

_FILES = frozenset({"storage", "fs", "obj"})
"""Canonical media where each block is a file or an object, whose removals no engine announces."""

OWNED = ":"
"""Between an owner and the medium where it keeps blocks, in the name of a medium that is not the engine's."""


def owner_of(medium: str) -> str:
    """Return whose a canonical medium is; empty: the engine's own."""
    owner, colon, _ = medium.partition(OWNED)
    return owner if colon else ""


def is_kept_once(medium: str) -> bool:
    """Tell whether a medium holds each block once, however often it is handed to it.

    Such media outlive the engine: a session that restarts finds there what earlier ones left, and announces
    nothing of it. So nobody knows from the events alone all that they hold.
    """
    return medium in _FILES or OWNED in medium


def is_store_only(event: Stored | Removed) -> bool:
    """Tell whether what leaves a medium is not announced, to judge by its first store, or a removal before.

    What is removed there all the same, by clients for example, is not all that leaves. A GPU is never so.
    """
    told = isinstance(event, Stored) and event.store_only
    return event.medium in _FILES or (told and event.medium != "gpu")


def is_cleared(medium: str, scope: str) -> bool:
    """Tell whether a clear is of a medium.

    `scope` is a medium; an owner and a colon, for all of that owner; or empty, for all of the engine's own.
    """
    return medium == scope or owner_of(medium) + OWNED == (scope or OWNED)
