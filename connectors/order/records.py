"""Records of `kvlens.events.v1` as a stream makes them, and the position that each gives. No IO."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from connectors.sources import SourceKey
from schemas.events import Closed, EventsRecord

NONE: Mapping[str, tuple[int, int]] = MappingProxyType({})
_SEQ: Final = 6
"""Offset of the first batch's number, after the heads of the array of batches and of the batch."""
_BYTES_BEHIND: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
"""Bytes that follow the first byte of a MessagePack number; small numbers and nil are that byte alone."""
_TIMES = struct.Struct(">xdxd")
"""`ts` and `received_at`: each a byte that marks a float, then its eight bytes."""


class PackedRecord(EventsRecord):
    """A record whose batches are encoded already. The last one of a session is never packed."""

    batches: msgspec.Raw  # type: ignore[assignment] # what stands there is the encoding of the same


def came_at(record: EventsRecord) -> float:
    """Return `received_at` of the first batch of a record, seconds since the epoch."""
    if not isinstance(record, PackedRecord):
        return record.batches[0].received_at
    # Not by decoding the batches: that would cost as much as everything else that a record costs.
    packed = memoryview(record.batches)
    received_at: float = _TIMES.unpack_from(packed, _SEQ + 1 + _BYTES_BEHIND.get(packed[_SEQ], 0))[1]
    return received_at


class Mention(NamedTuple):
    """What one events record says about the position of its source."""

    source: SourceKey
    incarnation: int
    seq: int | None
    """Last sequence number in the record; None when it holds only notices."""
    fingerprint: int
    closed: bool
    """Whether the session ends with the record."""
    emitters: Mapping[str, tuple[int, int]] = NONE
    """As in the record."""


def mention_of(record: EventsRecord) -> Mention:
    """Return what a record says of its source's position; a `Closed` is always the last thing in a record."""
    closed = False
    if not isinstance(record, PackedRecord):
        events = record.batches[-1].events
        closed = bool(events) and type(events[-1]) is Closed
    return Mention(
        (record.replica, record.dp_rank),
        record.incarnation,
        record.last_seq,
        record.last_fingerprint,
        closed,
        record.emitters or NONE,
    )
