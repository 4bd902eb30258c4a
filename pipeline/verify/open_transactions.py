"""Waits until everything written to a transactional topic can be read.

A reader of committed records gets no further than the first record of an open transaction (the last
stable offset), even if others committed after it. A killed worker may leave one open: its successor ends it,
or the broker does after `TRANSACTION_TIMEOUT_MS`. Committed offsets of other partitions show long before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

_ASK_AGAIN_SECONDS = 0.2

Offsets = Callable[[], Awaitable[Mapping[int, int]]]
"""Asks for an offset of each partition."""


async def held_back(
    written: Offsets,
    readable: Offsets,
    *,
    patience: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> list[int]:
    """Return the partitions with a record from before this call that cannot be read after `patience` seconds.

    `written`: ends of the partitions (high watermarks). `readable`: how far readers of committed records get.
    A transaction has written all its records before it commits. So what the group committed before this call
    lies before the ends as they are now.
    """
    ends = await written()
    until = clock() + patience
    while True:
        reached = await readable()
        behind = sorted(partition for partition, end in ends.items() if reached[partition] < end)
        if not behind or clock() >= until:
            return behind
        await sleep(_ASK_AGAIN_SECONDS)
