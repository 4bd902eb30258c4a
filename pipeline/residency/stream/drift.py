"""Compares what is resident according to events with the capacity that the engine reports.

An engine cannot hold more physical blocks than it has. If it seems to, removals are missing, or stores were
counted that never happened. One pool of blocks serves all groups of an engine, vLLM never uses one of its
blocks (the null block), and a block may carry entries of smaller sizes as well (partial tails, fine blocks).
So only entries of each group's largest size count, and only from the engine's own block size on: a lower
bound of the blocks in use, which a healthy stream cannot push beyond the capacity.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.residency.occupancy import Occupancy
from schemas.checkpoints import DriftState
from schemas.events import EngineCounters

UNUSED_BLOCKS = 1
"""Blocks that an engine never uses if it reports no other number: vLLM's null block."""


def differs(drift: DriftState, counters: EngineCounters) -> bool:
    """Return whether these counters report something new."""
    return (
        (counters.capacity_blocks or 0) > drift.capacity_blocks
        or counters.block_size not in (None, drift.block_size)
        or counters.unused_blocks not in (None, drift.unused_blocks)
    )


def take_over(drift: DriftState, counters: EngineCounters) -> None:
    """Take over how much memory the engine reports.

    The largest capacity of a session counts: another one may already be that of the next session, which the
    event stream will show later.
    """
    drift.capacity_blocks = max(drift.capacity_blocks, counters.capacity_blocks or 0)
    if counters.block_size is not None:
        drift.block_size = counters.block_size
    if counters.unused_blocks is not None:
        drift.unused_blocks = counters.unused_blocks


def known(drift: DriftState) -> bool:
    """Return whether the engine has reported its capacity and block size."""
    return bool(drift.capacity_blocks and drift.block_size)


def blocks(drift: DriftState, occupancy: Iterable[Occupancy]) -> int:
    """Return how many more physical blocks are resident than the engine has, at least; 0 if unknown."""
    if not known(drift):
        return 0
    largest: dict[int, tuple[int, int]] = {}
    for part in occupancy:
        if part.medium == "gpu" and part.block_size >= drift.block_size:
            so_far = largest.get(part.group_idx, (0, 0))
            largest[part.group_idx] = max(so_far, (part.block_size, part.entries))
    resident = sum(entries for _, entries in largest.values())
    return max(0, resident - (drift.capacity_blocks - drift.unused_blocks))


def since_window(drift: DriftState, window: int, blocks: int) -> int | None:
    """Return what `since` becomes if the open `window` ends with `blocks` too many."""
    if not blocks:
        return None
    return window if drift.since is None else drift.since
