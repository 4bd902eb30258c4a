"""Restores a source from the records of its base."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from pipeline.errors import CheckpointCorrupt, CheckpointDamaged
from pipeline.residency.checkpoint.entries import unpacked_entries
from pipeline.residency.counting.copies import NewCopies
from pipeline.residency.counting.pool import Pool
from pipeline.residency.source import SourceResidency
from schemas.checkpoints import BasePart, SourceBase, SourceHead, part_slot, slot_key
from schemas.hashes import HASH_BYTES
from schemas.pool_checkpoints import PoolEntries
from schemas.settings import Worker

_decode_base = msgspec.msgpack.Decoder(SourceBase).decode
_decode_head = msgspec.msgpack.Decoder(SourceHead).decode
_decode_part = msgspec.msgpack.Decoder(BasePart).decode


def restore(
    key: bytes,
    latest: Mapping[bytes, bytes],
    settings: Worker,
    new_copies: NewCopies,
    contradicts: Callable[[SourceResidency], str | None],
) -> tuple[SourceResidency, SourceBase]:
    """Return the source whose base has this key, and the base.

    `latest` holds the last record of every key; `contradicts` returns what of a source is inconsistent.

    Raises CheckpointCorrupt when a record of the base is missing or of another base, and CheckpointDamaged
    when the records contradict each other.
    """
    replica, dp_rank, _ = msgspec.msgpack.decode(key)
    base = _decode_base(latest[key])
    parts = []
    for number in range(base.parts):
        packed = latest.get(slot_key(replica, dp_rank, part_slot(base.number, number)))
        part = _decode_part(packed) if packed else None
        if part is None or part.number != base.number:
            raise CheckpointCorrupt(f"{replica}/{dp_rank}", f"part {number} of the base")
        parts.append(part)
    head = base.head if base.head is not None else _decode_head(b"".join(part.head for part in parts))
    source = SourceResidency(head, settings, new_copies)
    _put(source, [entries for part in parts for entries in part.pools])
    if (head.replica, head.dp_rank) != (replica, dp_rank):
        raise CheckpointDamaged(f"the base of {replica}/{dp_rank}", "it is of another source")
    if (found := contradicts(source)) is not None:
        raise CheckpointDamaged(f"the state of {replica}/{dp_rank}", found)
    return source, base


def _put(source: SourceResidency, parts: Iterable[PoolEntries]) -> None:
    found = [(source.pools[part.medium, part.group_idx], part) for part in parts]
    for counted in source.pools.counted:
        # Entries come in the order of their slots: in a table that grows with them, all would cluster at
        # its beginning.
        packed = sum(len(part.hashes) for into, part in found if into is counted and not part.repeats)
        counted.copies.make_room(packed // HASH_BYTES)
    for pool, part in found:
        if not isinstance(pool, Pool):
            raise CheckpointDamaged(f"the state of {source.head.replica}", "entries of two granularities")
        into = pool.repeats.table if part.repeats else pool
        into.put(unpacked_entries(pool, part))
