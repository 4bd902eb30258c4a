"""How far the state of a partition is, as its checkpoint records it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pipeline.errors import CheckpointDamaged, CheckpointFormatUnknown, damaged_if_it_fails, shown_key
from pipeline.residency.silence import SourceKey
from schemas.checkpoints import FORMAT, META_KEY, CheckpointFormat, PartitionMeta

_decode_format = msgspec.msgpack.Decoder(CheckpointFormat).decode
_decode_meta = msgspec.msgpack.Decoder(PartitionMeta).decode
_decode_key = msgspec.msgpack.Decoder(tuple[str, int, str | int]).decode


def read(value: bytes) -> PartitionMeta:
    """Return what the record under META_KEY holds. Raises CheckpointFormatUnknown, CheckpointDamaged."""
    with damaged_if_it_fails(META_KEY):
        found = _decode_format(value).format
        if found != FORMAT:
            raise CheckpointFormatUnknown(found, FORMAT)
        meta = _decode_meta(value)
        if any(one.lacks is not None and one.lacks >= meta.next_offset for one in meta.sources):
            raise CheckpointDamaged(shown_key(META_KEY), "offsets do not fit")
        return meta


def begins(meta: PartitionMeta) -> int:
    """Return the offset of the first record that some base lacks, `next_offset` if none lacks any."""
    return min((one.lacks for one in meta.sources if one.lacks is not None), default=meta.next_offset)


def included(meta: PartitionMeta) -> dict[SourceKey, int]:
    """Return the offset before which each source's records are in it already, or must not come into it."""
    gone = {(one.replica, one.dp_rank): one.offset for one in meta.forgotten}
    return gone | {
        (one.replica, one.dp_rank): meta.next_offset if one.lacks is None else one.lacks
        for one in meta.sources
    }


def slots_of_sources(latest: Mapping[bytes, bytes]) -> dict[SourceKey, list[str | int]]:
    """Return the slots that a checkpoint has of each source. Raises CheckpointDamaged for other keys."""
    found: dict[SourceKey, list[str | int]] = {}
    for key in latest:
        if key != META_KEY:
            with damaged_if_it_fails(key):
                replica, dp_rank, slot = _decode_key(key)
                found.setdefault((replica, dp_rank), []).append(slot)
    return found
