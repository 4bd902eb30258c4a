"""A source as its checkpoint records have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.errors import CheckpointCorrupt, CheckpointDamaged
from pipeline.residency.checkpoint.entries import unpacked_entries
from pipeline.residency.checkpoint.soundness import contradiction
from pipeline.residency.counting.block_table import PLACES, BlockColumns, places
from pipeline.residency.counting.pool import Pool
from pipeline.residency.pools import NewPool
from pipeline.residency.source import SourceResidency
from schemas.checkpoints import (
    NO_BASE,
    BaseRange,
    PieceNumbers,
    PoolEntries,
    PoolsRecord,
    SourceHead,
    base_slot,
    head_piece_slot,
    slot_key,
)
from schemas.hashes import HASH_BYTES
from schemas.settings import Worker

_AT_ONCE = 16_384

_decode_head = msgspec.msgpack.Decoder(SourceHead).decode
_decode_head_or_pieces = msgspec.msgpack.Decoder(SourceHead | PieceNumbers).decode
_decode_pools = msgspec.msgpack.Decoder(PoolsRecord).decode


def restore(
    key: bytes,
    latest: Mapping[bytes, bytes],
    settings: Worker,
    new_pool: NewPool = Pool,
    contradicts: Callable[[SourceResidency], str | None] = contradiction,
) -> tuple[SourceResidency, list[int]]:
    """Return the source whose head has this key, and the slots of the deltas it rests on, oldest first.

    `latest` holds the last record of every key; `contradicts` says what of a source does not fit together.

    Raises CheckpointCorrupt when a record that the head refers to is missing or of another checkpoint, and
    CheckpointDamaged when what the records say does not fit together.
    """
    head = _head(key, latest)
    if not _cover_everything(head.bases, head.last_delta):
        raise CheckpointDamaged(f"the state of {head.replica}/{head.dp_rank}", "bases do not fit")
    source = SourceResidency(head, settings, new_pool)
    _put_bases(source, latest)
    slots, deltas = _deltas(head, latest, min(each.delta for each in head.bases))
    _apply_deltas(source, deltas)
    if (found := contradicts(source)) is not None:
        raise CheckpointDamaged(f"the state of {head.replica}/{head.dp_rank}", found)
    return source, slots


def _head(key: bytes, latest: Mapping[bytes, bytes]) -> SourceHead:
    head = _decode_head_or_pieces(latest[key])
    if isinstance(head, SourceHead):
        return head
    replica, dp_rank, _ = msgspec.msgpack.decode(key)
    keys = [slot_key(replica, dp_rank, head_piece_slot(piece)) for piece in head]
    if not latest.keys() >= {*keys}:
        raise CheckpointCorrupt(f"{replica}/{dp_rank}", "a piece of its head")
    return _decode_head(b"".join(latest[each] for each in keys))


def _cover_everything(bases: list[BaseRange], last_delta: int) -> bool:
    """Return whether the ranges begin with the first place, follow each other, and rest on known deltas."""
    starts = [each.start for each in bases]
    return (
        starts[:1] == [0]
        and all(before < after for before, after in pairwise([*starts, PLACES]))
        and all(0 <= each.delta <= last_delta for each in bases)
    )


def _record(head: SourceHead, latest: Mapping[bytes, bytes], slot: str | int, number: int) -> PoolsRecord:
    packed = latest.get(slot_key(head.replica, head.dp_rank, slot))
    record = _decode_pools(packed) if packed else None
    if record is None or record.number != number:
        raise CheckpointCorrupt(f"{head.replica}/{head.dp_rank}", f"record {slot}")
    return record


def _pool_of(source: SourceResidency, part: PoolEntries) -> Pool | None:
    """Return the pool that entries belong to; None where they do not count any more."""
    pool = source.pools[part.medium, part.group_idx]
    return pool if isinstance(pool, Pool) and pool.head.life == part.life else None


def _put_bases(source: SourceResidency, latest: Mapping[bytes, bytes]) -> None:
    """Set what the bases have of their ranges."""
    bases = source.head.bases
    ends = [each.start for each in bases[1:]] + [PLACES]
    found = [
        (pool, part, each.start, end)
        for each, end in zip(bases, ends, strict=True)
        if each.base != NO_BASE
        for part in _record(source.head, latest, base_slot(each.base), each.delta).pools
        if (pool := _pool_of(source, part)) is not None
    ]
    for pool in source.pools.counted:
        # Bases are in the order of places: in a table that grows with them all would crowd at its beginning.
        pool.make_room(sum(len(part.hashes) for into, part, _, _ in found if into is pool) // HASH_BYTES)
    for pool, part, start, end in found:
        pool.put(_between(unpacked_entries(pool, part), source.head.spread, start, end))


def _between(columns: BlockColumns, spread: int, start: int, end: int) -> BlockColumns:
    if (start, end) == (0, PLACES):
        return columns
    at = places(columns.hashes, spread)
    return _chosen(columns, (at >= start) & (at < end))


def _chosen(columns: BlockColumns, rows: npt.NDArray[np.bool_]) -> BlockColumns:
    return BlockColumns._make(column[rows] for column in columns)


def _deltas(
    head: SourceHead, latest: Mapping[bytes, bytes], oldest: int
) -> tuple[list[int], list[PoolsRecord]]:
    """Return the slots and records of the deltas after `oldest`, in their order."""
    slots: list[int] = []
    records: list[PoolsRecord] = []
    slot = head.last_slot
    for number in range(head.last_delta, oldest, -1):
        slots.append(slot)
        records.append(_record(head, latest, slot, number))
        slot = records[-1].before
    return slots[::-1], records[::-1]


def _apply_deltas(source: SourceResidency, deltas: list[PoolsRecord]) -> None:
    """Apply, in their order, what deltas have of the ranges whose bases do not include them."""
    bases = source.head.bases
    starts = np.array([each.start for each in bases], np.uint64)
    included = np.array([each.delta for each in bases], np.int64)
    parts: dict[Pool, list[tuple[int, BlockColumns]]] = {}
    for number, record in enumerate(deltas, int(included.min()) + 1):
        for part in record.pools:
            pool = _pool_of(source, part)
            if pool is not None:
                columns = unpacked_entries(pool, part)
                parts.setdefault(pool, []).append((number, columns))
    for pool, each in parts.items():
        joined = BlockColumns._make(map(np.concatenate, zip(*(columns for _, columns in each), strict=True)))
        numbers = np.repeat([number for number, _ in each], [len(columns.hashes) for _, columns in each])
        ranges = np.searchsorted(starts, places(joined.hashes, source.head.spread), side="right") - 1
        counting = _chosen(joined, numbers > included[ranges])
        # By portions, because most of them replace or remove what is there: the table shall not grow for it.
        for start in range(0, len(counting.hashes), _AT_ONCE):
            pool.put(BlockColumns._make(column[start : start + _AT_ONCE] for column in counting))
