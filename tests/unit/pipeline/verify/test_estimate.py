"""What a trial says of a topic of which every partition is read at the same pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.estimate import PARTS, tried

RECORD_SECONDS = 0.0005


class Log:
    """Records at every other offset, as where transactions have markers; one in ten is refused."""

    record_bytes = 1000

    def __init__(self, *lengths: int) -> None:
        self._lengths = dict(enumerate(lengths))
        self.partitions = len(lengths)
        self.read: set[int] = set()

    async def lengths(self, until: int | None) -> dict[int, int]:
        return {n: length if until is None else min(length, until) for n, length in self._lengths.items()}

    async def end(self, partition: int) -> int:
        return self._lengths[partition]

    async def records(self, partition: int, begin: int, end: int) -> AsyncIterator[tuple[int, Any]]:
        self.read.add(partition)
        for offset in range(begin, end, 2):
            yield offset, RecordRefused("uneven_columns", "", ()) if offset % 20 == 0 else "record"


class Recount:
    """Takes as long for each record, by a clock of its own."""

    now = 0.0

    def __call__(self, _partition: int, _offset: int, _record: object) -> None:
        self.now += RECORD_SECONDS

    def clock(self) -> float:
        return self.now


def test_a_trial_of_the_longest_partitions_says_what_all_of_them_take() -> None:
    log = Log(100, 4000, 8000, 4000, 4000, 4000)
    recount = Recount()
    cost = asyncio.run(tried(log, None, recount, recount.clock))  # type: ignore[arg-type]
    assert cost is not None
    assert (cost.offsets, len(log.read), 0 in log.read) == (24_100, PARTS, False)
    # Half of the offsets are records, nine in ten of which are applied.
    assert abs(cost.seconds / (24_100 / 2 * 0.9 * RECORD_SECONDS) - 1) < 0.02
    assert abs(cost.megabytes - 12.05) < 0.1


def test_a_short_topic_needs_no_trial() -> None:
    assert asyncio.run(tried(Log(1000, 900), None, Recount())) is None  # type: ignore[arg-type]
    assert asyncio.run(tried(Log(9000, 9000), 100, Recount())) is None  # type: ignore[arg-type]
