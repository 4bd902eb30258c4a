"""Runs and packed columns flattened: one change for each block. No IO."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from kvlens_reader.records.events import Batch, Cleared, Closed, Event, EventsRecord, Removed, Stored
from kvlens_reader.records.hashes import unpack_hashes
from kvlens_reader.records.json_form import KIND_NAMES
from kvlens_reader.records.residency import FILLS, ResidencyChanges, ResidencyRecord, SourceChanges

Came = Literal["filled", "generated", "returned"]
"""`generated`: decoding completed the block; `returned`: it seemed to have left, and is there."""
Left = Literal["evicted", "cleared", "expired", "subsumed"]


class BlockChange(msgspec.Struct, frozen=True, gc=False):
    """One copy of one block came or left, as an engine announced it; or it dropped what a scope names."""

    replica: str
    dp_rank: int
    model: str
    hash_domain: str
    """Hashes compare only inside one."""
    incarnation: int
    """Engine session; a greater one begins with an empty cache."""
    seq: int | None
    """Number of the engine's batch; None for what the connector says itself."""
    at: float
    """Engine clock, seconds since the epoch."""
    kind: Literal["stored", "removed", "cleared", "closed"]
    """`cleared`: `medium` and `group_idx` say what, as in `Cleared`; `closed`: the session ended."""
    hash: int
    """Unsigned, 64 bits; 0 where everything was dropped."""
    medium: str | None
    group_idx: int | None
    block_size: int = 0
    """Tokens of the block; 0 where the engine does not say, and for removals."""
    parent: int | None = None
    """Hash of the block before it; None at the start of a sequence, and for removals."""
    lora: str | None = None


class ResidencyChange(msgspec.Struct, frozen=True, gc=False):
    """A block's first copy came to a medium and group of a replica, or its last one left."""

    replica: str
    dp_rank: int
    model: str
    hash_domain: str
    incarnation: int
    at: float
    """Event time, seconds since the epoch."""
    kind: Came | Left
    hash: int
    medium: str
    group_idx: int
    block_size: int
    root: int | None = None
    """Hash of the first block of its chain, of a fill; None if unknown."""
    depth: int | None = None
    """Blocks of the chain up to and including it, of a fill; None if unknown."""
    lora: str | None = None


def block_changes(record: EventsRecord) -> Iterator[BlockChange]:
    """Give the changes of a record of `events.v1` in their order."""
    for batch in record.batches:
        for event in batch.events:
            yield from changes_of(record, batch, event)


def changes_of(record: EventsRecord, batch: Batch, event: Event) -> Iterator[BlockChange]:
    """Give the changes of one event."""
    said = (record.replica, record.dp_rank, record.model, record.hash_domain, record.incarnation)
    when = (batch.seq, batch.ts)
    if isinstance(event, Stored):
        parent = None if event.parent is None else unpack_hashes(event.parent)[0]
        for one in unpack_hashes(event.hashes):
            where = (event.medium, event.group_idx)
            yield BlockChange(*said, *when, "stored", one, *where, event.block_size, parent, event.lora)
            parent = one
    elif isinstance(event, Removed):
        for one in unpack_hashes(event.hashes):
            yield BlockChange(*said, *when, "removed", one, event.medium, event.group_idx)
    elif isinstance(event, Cleared):
        yield BlockChange(*said, *when, "cleared", 0, event.medium, event.group_idx)
    elif isinstance(event, Closed):
        yield BlockChange(*said, *when, "closed", 0, None, None)


def residency_changes(record: ResidencyRecord) -> Iterator[ResidencyChange]:
    """Give the changes of a record of `residency.v1`; those of a source in their order."""
    for source in record.sources:
        for changes in source.changes:
            yield from _unpacked(source, changes)


def _unpacked(source: SourceChanges, changes: ResidencyChanges) -> Iterator[ResidencyChange]:
    said = (source.replica, source.dp_rank, source.model, source.hash_domain, source.incarnation)
    hashes = unpack_hashes(changes.hashes)
    times = struct.unpack(f"<{len(hashes)}d", changes.times)
    sizes = struct.unpack(f"<{len(hashes)}I", changes.block_sizes)
    fills = sum(kind in FILLS for kind in changes.kinds)
    roots = unpack_hashes(changes.roots) or (0,) * fills
    depths = struct.unpack(f"<{len(changes.depths) // 2}H", changes.depths) or (0,) * fills
    codes = struct.unpack(f"<{len(changes.lora_codes) // 2}H", changes.lora_codes) or (0,) * fills
    of_fills = zip(roots, depths, codes, strict=True)
    for one, kind, at, size in zip(hashes, changes.kinds, times, sizes, strict=True):
        where = (changes.medium, changes.group_idx, size)
        name: Any = KIND_NAMES[kind]
        if kind not in FILLS:
            yield ResidencyChange(*said, at, name, one, *where)
            continue
        root, depth, code = next(of_fills)
        lora = changes.loras[code - 1] if code else None
        known = root if depth else None
        yield ResidencyChange(*said, at, name, one, *where, known, depth or None, lora)
