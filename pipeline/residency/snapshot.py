"""The state of a source as checkpoint records, and back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pipeline.errors import CheckpointCorrupt, CheckpointDamaged
from pipeline.residency import entries
from pipeline.residency.counting.pool import Pool
from pipeline.residency.soundness import contradiction
from pipeline.residency.source import SourceResidency
from schemas.checkpoints import (
    BASE,
    DELTA_SLOTS,
    HEAD,
    HEAD_PIECE_BYTES,
    HeadPieces,
    PoolsRecord,
    SourceHead,
    head_piece_slot,
    slot_key,
)
from schemas.settings import Worker

_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(SourceHead).decode
_decode_head_or_pieces = msgspec.msgpack.Decoder(SourceHead | HeadPieces).decode
_decode_pools = msgspec.msgpack.Decoder(PoolsRecord).decode


class SourceSnapshots:
    """Writes the checkpoints of one source: the head, and a base of entries now and then, deltas between."""

    def __init__(self, source: SourceResidency) -> None:
        self._source = source
        self._delta_entries = 0
        """Entries in the deltas written since the last base, by this process."""

    def cut(self) -> list[tuple[bytes, bytes]]:
        """Return the (key, value) records that bring the checkpoint up to date."""
        head, pools = self._source.head, self._source.pools
        pools.settle()
        records: list[tuple[bytes, bytes]] = []
        changed = [pool for pool in pools.counted if pool.unsaved]
        unsaved = sum(pool.unsaved for pool in changed)
        resident = sum(sum(pool.head.blocks) for pool in pools.counted)
        if (
            pools.needs_base
            or head.deltas - head.base_deltas + 1 + unsaved // entries.RECORD_ENTRIES > DELTA_SLOTS
            or self._delta_entries + unsaved > resident // 2 + 4096
        ):
            head.epoch += 1
            head.deltas = self._delta_entries = 0
            pools.needs_base = False
            base, *rest = entries.all_entries(pools.counted)
            head.base_deltas = len(rest)
            records.append((self._key(BASE), _encode(PoolsRecord(head.epoch, base))))
        else:
            self._delta_entries += unsaved
            rest = entries.changed_entries(changed) if changed else []
        for delta in rest:
            head.deltas += 1
            records.append((self._key(head.deltas), _encode(PoolsRecord(head.epoch, delta))))
        for pool in changed:
            pool.saved()
        return [*records, *self._head_records(_encode(head))]

    def _head_records(self, head: bytes) -> list[tuple[bytes, bytes]]:
        if len(head) <= HEAD_PIECE_BYTES:
            return [(self._key(HEAD), head)]
        pieces = [head[at : at + HEAD_PIECE_BYTES] for at in range(0, len(head), HEAD_PIECE_BYTES)]
        return [
            *((self._key(head_piece_slot(number)), piece) for number, piece in enumerate(pieces, 1)),
            (self._key(HEAD), _encode(len(pieces))),
        ]

    def _key(self, slot: str | int) -> bytes:
        return slot_key(self._source.head.replica, self._source.head.dp_rank, slot)


def restore(key: bytes, latest: Mapping[bytes, bytes], settings: Worker) -> SourceResidency:
    """Return the source whose head has this key; `latest` holds the last record of every key.

    Raises CheckpointCorrupt when a record that the head refers to is missing or of another epoch, and
    CheckpointDamaged when what the records say does not fit together.
    """
    head = _head(key, latest)
    source = SourceResidency(head, settings)
    source.pools.needs_base = False
    for slot in (BASE, *range(1, head.deltas + 1)):
        packed = latest.get(slot_key(head.replica, head.dp_rank, slot))
        record = _decode_pools(packed) if packed is not None else None
        if record is None or record.epoch != head.epoch:
            raise CheckpointCorrupt(f"{head.replica}/{head.dp_rank}", f"record {slot}")
        for part in record.pools:
            pool = source.pools[part.medium, part.group_idx]
            if isinstance(pool, Pool):
                entries.restore_entries(pool, part)
    if (found := contradiction(source)) is not None:
        raise CheckpointDamaged(f"the state of {head.replica}/{head.dp_rank}", found)
    return source


def _head(key: bytes, latest: Mapping[bytes, bytes]) -> SourceHead:
    head = _decode_head_or_pieces(latest[key])
    if isinstance(head, SourceHead):
        return head
    replica, dp_rank, _ = msgspec.msgpack.decode(key)
    keys = [slot_key(replica, dp_rank, head_piece_slot(piece)) for piece in range(1, head + 1)]
    if not latest.keys() >= {*keys}:
        raise CheckpointCorrupt(f"{replica}/{dp_rank}", "a piece of its head")
    return _decode_head(b"".join(latest[each] for each in keys))
