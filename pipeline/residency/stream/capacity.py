"""How many blocks an engine has room for, in blocks as its events announce them.

An engine that reports its capacity in tokens reports the size of its pages, too. With context parallelism its
events announce wider blocks (SGLang: page size times ranks), and its tokens may be those of one rank or of
all: no metric says which. What is resident, and what requests use, may show it.
"""

from __future__ import annotations

from collections.abc import Collection

from pipeline.residency.occupancy import Occupancy
from schemas.events import EngineCounters

USAGE_MARGIN = 0.25
"""Share of the capacity: requests use blocks before these are full and stored."""


def in_largest_blocks(counters: EngineCounters, on_gpu: Collection[Occupancy]) -> int | None:
    """Return the capacity of the GPU in its largest blocks, None where it cannot be known."""
    pages, page = counters.capacity_blocks, counters.block_size
    size = max((part.block_size for part in on_gpu), default=0)
    if pages is None or counters.unused_blocks != 0 or not page or size <= page:
        return pages
    if size % page or len({part.group_idx for part in on_gpu}) > 1:
        return None
    of_all_ranks = pages * page // size
    entries = sum(part.entries for part in on_gpu if part.block_size == size)
    if entries > of_all_ranks:
        return pages
    in_use = (counters.kv_cache_usage or 0.0) * pages
    return of_all_ranks if in_use > entries + USAGE_MARGIN * pages else None
