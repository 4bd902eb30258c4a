"""Limits of what a source may bring, so that none costs the others more than its share.

Every limit depends on the log alone: any process that applies it, however often restarted, leaves out the
same events. What is left out degrades its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pipeline.residency.counting.pool import Pool
from pipeline.residency.granularity.two_sizes import GranularPool
from schemas.events import Event, Stored
from schemas.hashes import HASH_BYTES
from schemas.reasons import LimitReason
from schemas.settings import Worker

MOST_OF_A_BATCH = 1 << 20
"""Blocks that a record of 8 MiB can store."""
MOST_ADAPTERS = 1000
"""LoRA adapters that an engine names in one session; further ones count as `(others)`."""
LEFT_AFTER_SHEDDING = 7 / 8
"""Share of `max_itemised_blocks` that stays: little enough that not every batch sheds."""


class LeftOut(NamedTuple):
    """What a limit keeps out of the state; `events` is 0 where only blocks were dropped."""

    reason: LimitReason
    events: int


def sizes(pools: Iterable[Pool | GranularPool]) -> int:
    """Return how many block sizes count against `max_pool_sizes`; a pool without any counts as one."""
    return sum(2 if isinstance(pool, GranularPool) else max(1, len(pool.head.block_sizes)) for pool in pools)


def resident(pools: Iterable[Pool | GranularPool]) -> int:
    """Return how many blocks settled pools hold."""
    return sum(pool.blocks if isinstance(pool, GranularPool) else sum(pool.head.blocks) for pool in pools)


def announced_again(pools: Iterable[Pool | GranularPool]) -> int:
    """Return how many more blocks settled pools may hold, as they were announced again."""
    return sum(pool.repeats.table.blocks for pool in pools if isinstance(pool, Pool))


def itemised(pools: Iterable[Pool | GranularPool]) -> int:
    """Return how many blocks settled pools hold one by one."""
    return sum(pool.blocks if isinstance(pool, GranularPool) else pool.other_copies for pool in pools)


def coming(events: Iterable[Event]) -> int:
    """Return how many blocks a batch stores."""
    return sum(len(event.hashes) for event in events if type(event) is Stored) // HASH_BYTES


class Room:
    """How much more a source may bring; it does not depend on when its pools settled."""

    def __init__(self, settings: Worker, pools: Iterable[Pool | GranularPool]) -> None:
        self._settings = settings
        self.settled(pools)

    def settled(self, pools: Iterable[Pool | GranularPool]) -> None:
        """Note that pools have applied all that they collected."""
        self._resident = resident(pools)
        self.itemised = itemised(pools)
        """Resident blocks that are kept one by one, and those of groups that became hybrid since."""
        self._may_be_back = announced_again(pools)
        """Blocks that may turn out to be resident as well."""
        self.unsettled = 0
        """Hashes that pools collected since."""

    def has(self, hashes: int = 0) -> bool:
        """Return whether there is room for `hashes` more, and for any batch after them."""
        collected = self.unsettled + self._may_be_back + hashes
        return (
            self._resident + collected + MOST_OF_A_BATCH <= self._settings.max_blocks
            and self.itemised + collected <= self._settings.max_itemised_blocks
        )

    def lacks(self, events: Iterable[Event], settle: Callable[[], None]) -> LimitReason | None:
        """Return why the stores of a batch are left out, None if there is room; `settle` settles pools."""
        if self.has():
            return None
        most_blocks, most_itemised = self._settings.max_blocks, self._settings.max_itemised_blocks
        stored, collected = coming(events), self.unsettled + self._may_be_back
        if self._resident + collected + stored > most_blocks or self.itemised + collected > most_itemised:
            settle()
            if self._resident + stored > most_blocks:
                return "too_many_blocks"
            if self.itemised > most_itemised:
                return "too_many_itemised"
        return None


def shed(pools: Iterable[Pool | GranularPool], most: int, at: float) -> bool:
    """Drop uncovered fine blocks if hybrid groups have more than `most` blocks; return whether any went."""
    granular = [pool for pool in pools if isinstance(pool, GranularPool)]
    blocks = sum(pool.blocks for pool in granular)
    if blocks <= most:
        return False
    excess = blocks - int(most * LEFT_AFTER_SHEDDING)
    gone = 0
    for pool in granular:
        if gone < excess:
            gone += pool.shed(excess - gone, at)
    return gone > 0
