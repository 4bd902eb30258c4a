"""How long the recount of a topic takes on this machine, tried on a part of it beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.topic_log import Record, TopicLog

PARTS = 4
"""Partitions that are tried: the longest ones."""
SECONDS = 0.5
"""For each of them."""
_SMALL = 2_000
"""Offsets of a topic that are not worth a trial."""


class Cost(NamedTuple):
    """What a topic takes, as far as a trial tells."""

    offsets: int
    seconds: float
    megabytes: float


async def tried(
    log: TopicLog[Record], until: int | None, recount: Callable[[int, int, Record], None]
) -> Cost | None:
    """Return what all of a topic takes; None if it is too short for a trial.

    `recount` is given partition, offset and record, as the comparison will be. Records are those behind the
    middle of the longest partitions, and nothing is known before them.
    """
    lengths = await log.lengths(until)
    total = sum(lengths.values())
    if total < _SMALL:
        return None
    spent, passed, read = 0.0, 0, 0
    for partition in sorted(lengths, key=lambda one: -lengths[one])[:PARTS]:
        length = lengths[partition]
        if not length:
            break
        end = min(await log.end(partition), until) if until is not None else await log.end(partition)
        first = last = end - length // 2
        began = None
        async for offset, record in log.records(partition, first, end):
            # What comes before the first record is no part of reading on.
            began = began or time.monotonic()
            if not isinstance(record, RecordRefused):
                recount(partition, offset, record)
            read += log.record_bytes
            last = offset + 1
            if time.monotonic() - began > SECONDS:
                break
        if began is not None:
            spent += time.monotonic() - began
            passed += last - first
    if not passed:
        return None
    return Cost(total, spent / passed * total, read / passed * total / 1e6)
