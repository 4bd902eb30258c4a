"""Records of one source as a connector writes them; a test says of them what it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from schemas.events import Batch, Event, EventsRecord, Opened, Removed, Stored
from schemas.hashes import unpack_hashes


def batch(seq: int, at: float, *events: Event, received_at: float | None = None, **said: Any) -> Batch:
    """Return a batch that was received when it was published, unless something else is said."""
    return Batch(seq, at, at if received_at is None else received_at, [*events], len(events), **said)


def notice(at: float, event: Event) -> Batch:
    return Batch(None, at, at, [event])


def opened(at: float, first_seq: int = 0, *, complete: bool = True) -> Batch:
    return notice(at, Opened(first_seq, complete=complete))


def record(
    *batches: Batch, replica: str = "r", life: int = 1, domain: str = "d", **said: Any
) -> EventsRecord:
    """Return the record of a run of batches and notices."""
    seqs = [one.seq for one in batches if one.seq is not None]
    first, last = (seqs[0], seqs[-1]) if seqs else (None, None)
    return EventsRecord(replica, "m", domain, 0, life, [*batches], first, last, **said)


def sent(seq: int, at: float, *events: Event, **said: Any) -> EventsRecord:
    """Return the record of a batch alone; the first of a life says that it is seen from its beginning."""
    return record(*([] if seq else [opened(at)]), batch(seq, at, *events), **said)


def events_in(records: Iterable[EventsRecord]) -> list[Event]:
    """Return the events of records, also of those whose batches were scanned and are encoded."""
    read = [msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=EventsRecord) for one in records]
    return [event for one in read for each in one.batches for event in each.events]


def held_after(records: Iterable[EventsRecord]) -> dict[str, set[int]]:
    """Return the blocks that are left on each medium, by stores and removals alone, each once."""
    held: defaultdict[str, set[int]] = defaultdict(set)
    for event in events_in(records):
        if isinstance(event, Stored):
            held[event.medium] |= {*unpack_hashes(event.hashes)}
        elif isinstance(event, Removed):
            held[event.medium] -= {*unpack_hashes(event.hashes)}
    return dict(held)
