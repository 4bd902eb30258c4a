"""Records of `kvlens.events.v1` as a stream makes them, and what one says of its source. No IO."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from connectors.sources import SourceKey
from schemas.events import Closed, EventsRecord

NONE: Mapping[str, tuple[int, int]] = MappingProxyType({})


class PackedRecord(EventsRecord):
    """A record whose batches are encoded already. The last one of a life is never packed."""

    batches: msgspec.Raw  # type: ignore[assignment] # what stands there is the encoding of the same


class Mention(NamedTuple):
    """What one events record says about the position of its source."""

    source: SourceKey
    incarnation: int
    seq: int | None
    """Last sequence number in the record; None when it holds only notices."""
    fingerprint: int
    closed: bool
    """Whether the incarnation ends with the record."""
    emitters: Mapping[str, tuple[int, int]] = NONE
    """As in the record."""


def mention_of(record: EventsRecord) -> Mention:
    """Return what a record says; a `Closed` is always the last thing in its record."""
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
