"""Runs that came one behind the other, as one: a worker that catches up reads many of each source at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

from pipeline.residency import windows
from pipeline.residency.intake.plain_runs import PlainRun
from schemas.events import EventsRecord

Numbered = tuple[int, EventsRecord | PlainRun]
"""A record, or what was read of it, and its offset."""


def stretches(records: Sequence[Numbered]) -> Iterator[Sequence[Numbered]]:
    """Yield records of one source in their order: runs that can be joined together, all others alone."""
    begin = 0
    for at in range(1, len(records) + 1):
        if at == len(records) or not _goes_on(records[at - 1][1], records[at][1]):
            yield records[begin:at]
            begin = at


def joined(runs: Sequence[PlainRun]) -> PlainRun:
    """Return runs of a stretch as one."""
    every: Any = PlainRun(*zip(*runs, strict=True))  # type: ignore[arg-type] # of each field all values
    return runs[-1]._replace(
        first_event=runs[0].first_event,
        first_hash=runs[0].first_hash,
        batches=sum(every.batches),
        first_seq=runs[0].first_seq,
        engine_events=sum(every.engine_events),
        shape_bits=reduce(or_, every.shape_bits),
        pool_bits=reduce(or_, every.pool_bits),
        has_loras=max(every.has_loras),
        has_links=max(every.has_links),
        first_time=min(every.first_time),
        last_time=max(every.last_time),
        latest_receipt=max(every.latest_receipt),
        lag=max(every.lag),
    )


def _goes_on(before: EventsRecord | PlainRun, run: EventsRecord | PlainRun) -> bool:
    """Return whether a run goes on with the one before it, in one window, and says the same of the source."""
    if not (isinstance(before, PlainRun) and isinstance(run, PlainRun)):
        return False
    said, said_before = run.record, before.record
    return (
        run.first_seq == before.last_seq + 1
        and run.first_event == before.end
        and run.chunk is before.chunk
        and windows.window_of(before.first_time) == windows.window_of(run.last_time)
        and said.incarnation == said_before.incarnation
        and said.engine == said_before.engine
        and said.wire_era == said_before.wire_era
        and said.may_reannounce == said_before.may_reannounce
        and said.clears_all == said_before.clears_all
        and said.one_copy == said_before.one_copy
        and said.remarks == said_before.remarks
        and not said.duplicates
        and not said_before.duplicates
    )
