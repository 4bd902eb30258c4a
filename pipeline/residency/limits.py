"""What a source may bring, so that none costs the others more than its share.

Every limit is a function of the log alone: whoever applies it, however often restarted, leaves out the same
events. What is left out degrades its source.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pipeline.residency.counting.pool import Pool
from pipeline.residency.granularity.two_sizes import GranularPool
from schemas.events import Event, Stored
from schemas.hashes import HASH_BYTES
from schemas.reasons import LimitReason

MOST_OF_A_BATCH = 1 << 20
"""Blocks that a record of 8 MiB can store."""
MOST_ADAPTERS = 1000
"""That an engine names in one session; others count as `(others)`."""
LEFT_AFTER_SHEDDING = 7 / 8
"""Of `max_itemised_blocks`: enough room that not every batch sheds."""


class LeftOut(NamedTuple):
    """Events, or none but blocks, that a limit keeps out of the state."""

    reason: LimitReason
    events: int


def sizes(pools: Iterable[Pool | GranularPool]) -> int:
    """Return how many block sizes count against `max_pool_sizes`; a pool without any is one as well."""
    return sum(2 if isinstance(pool, GranularPool) else max(1, len(pool.head.block_sizes)) for pool in pools)


def resident(pools: Iterable[Pool | GranularPool]) -> int:
    """Return how many blocks settled pools hold."""
    return sum(pool.blocks if isinstance(pool, GranularPool) else sum(pool.head.blocks) for pool in pools)


def itemised(pools: Iterable[Pool | GranularPool]) -> int:
    """Return how many blocks settled pools hold one by one."""
    return sum(pool.blocks if isinstance(pool, GranularPool) else pool.other_copies for pool in pools)


def coming(events: Iterable[Event]) -> int:
    """Return how many blocks the stores of a batch have."""
    return sum(len(event.hashes) for event in events if type(event) is Stored) // HASH_BYTES
