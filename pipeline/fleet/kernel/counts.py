"""What the compiled loop counts: open windows of sources, current redundancy, and its clock."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled, inlined
from pipeline.fleet.kernel.tables import F64, I64, U8

NO_WINDOW: Final = -(1 << 62)

# Indices of `Clock.counters`.
HEAD: Final = 0
TAIL: Final = 1
USED_BLOCKS: Final = 2
USED_PAIRS: Final = 3
WINDOW: Final = 4
LOSSES: Final = 5
UNMATCHED: Final = 6
COUNTERS: Final = 7


# Why a compiled loop returned.
DONE: Final = 0
"""Nothing is left that it may do now."""
CLOCK_MOVED: Final = 1
"""The next change begins a new window of the shard."""
ENDED_FULL: Final = 2
"""There may be no room for the next window of a cell that ends."""
REFILLS_FULL: Final = 3
"""There may be no free counter for the next refill."""


class Cells(NamedTuple):
    """Open window of each (source, hash domain, group)."""

    windows: I64
    versions: I64
    trusts: U8
    dirty: U8
    blocks: npt.NDArray[np.int64]
    """(cells, causes)"""
    tokens: npt.NDArray[np.int64]
    regret: npt.NDArray[np.int64]
    """(cells, BUCKETS)"""
    needed: npt.NDArray[np.int64]
    """(cells, NEEDED_BUCKETS), tokens."""
    parts: npt.NDArray[np.int64]
    """(cells, PARTS), tokens."""


class Ended(NamedTuple):
    """Windows of cells that ended since their rows were last written, each in a place of its own."""

    numbers: I64
    """The cell of each window."""
    used: I64
    """One element: how many there are."""
    cells: Cells
    """Their figures."""


class Gauges(NamedTuple):
    """Current redundancy of each (hash domain, group, medium)."""

    owners: npt.NDArray[np.int64]
    """(gauges, 5): blocks with 1, 2, 3, 4-7, 8 and more owners."""
    unique: I64
    """Tokens."""
    physical: I64
    """Tokens."""
    received: I64
    """One copy of each block that both sources that receive KV and others hold, in tokens."""
    versions: I64
    dirty: U8


class Clock(NamedTuple):
    """Counters and scalars that the loop updates."""

    counters: I64
    """By HEAD, TAIL, USED_BLOCKS, ..., UNMATCHED."""
    time: F64
    """One element: the latest event time seen."""
    pairs_of_source: I64
    """Pairs in the table, per source."""
    clears_of_source: I64
    """Per source, the number of its last loss by a clear, plus one."""


@compiled
def _owners_class(owners: int) -> int:
    if owners < 4:
        return owners - 1
    return 3 if owners < 8 else 4


@compiled
def counted_owners(owners: int, received: int) -> int:
    """Return how many copies count for redundancy. Where sources that receive KV and others hold a block, one
    copy is left out, as receivers need their own."""
    return owners - 1 if 0 < received < owners else owners


@inlined
def count_owners(
    gauges: Gauges, gauge: int, before: tuple[int, int], after: tuple[int, int], size: int, version: int
) -> None:
    """Count the change of a block's (owners, those of them that receive KV) from `before` to `after`."""
    counted_before, counted_after = before[0], after[0]
    if before[1] | after[1]:
        counted_before = counted_owners(before[0], before[1])
        counted_after = counted_owners(after[0], after[1])
        left_out = (after[0] - counted_after) - (before[0] - counted_before)
        gauges.received[gauge] += left_out * size
    if counted_before > 0:
        gauges.owners[gauge, _owners_class(counted_before)] -= 1
    else:
        gauges.unique[gauge] += size
    if counted_after > 0:
        gauges.owners[gauge, _owners_class(counted_after)] += 1
    else:
        gauges.unique[gauge] -= size
    gauges.physical[gauge] += (after[0] - before[0]) * size
    gauges.versions[gauge] = version
    gauges.dirty[gauge] = 1


@inlined
def count_fill(
    cells: Cells, cell: int, found: tuple[int, int, int], size: int, trust: int, version: int
) -> None:
    """Count a filled block; `found`: its cause, and the buckets of regret and extra cache or NO_BUCKET."""
    cause, regret, needed = found
    cells.blocks[cell, cause] += 1
    cells.tokens[cell, cause] += size
    if regret >= 0:
        cells.regret[cell, regret] += 1
    if needed >= 0:
        cells.needed[cell, needed] += size
    cells.versions[cell] = version
    cells.trusts[cell] = max(cells.trusts[cell], trust)
    cells.dirty[cell] = 1


@inlined
def begin_window(cells: Cells, cell: int, window: int, ended: Ended) -> None:
    """Begin a cell's next window; unwritten figures of the one before go to `ended`, which has room."""
    if cells.dirty[cell] != 0:
        to = ended.used[0]
        ended.used[0] = to + 1
        ended.numbers[to] = cell
        ended.cells.windows[to] = cells.windows[cell]
        ended.cells.versions[to] = cells.versions[cell]
        ended.cells.trusts[to] = cells.trusts[cell]
        for cause in range(cells.blocks.shape[1]):
            ended.cells.blocks[to, cause] = cells.blocks[cell, cause]
            ended.cells.tokens[to, cause] = cells.tokens[cell, cause]
        for bucket in range(cells.regret.shape[1]):
            ended.cells.regret[to, bucket] = cells.regret[cell, bucket]
        for bucket in range(cells.needed.shape[1]):
            ended.cells.needed[to, bucket] = cells.needed[cell, bucket]
        for part in range(cells.parts.shape[1]):
            ended.cells.parts[to, part] = cells.parts[cell, part]
    cells.windows[cell] = window
    cells.trusts[cell] = 0
    cells.dirty[cell] = 0
    for cause in range(cells.blocks.shape[1]):
        cells.blocks[cell, cause] = 0
        cells.tokens[cell, cause] = 0
    for bucket in range(cells.regret.shape[1]):
        cells.regret[cell, bucket] = 0
    for bucket in range(cells.needed.shape[1]):
        cells.needed[cell, bucket] = 0
    for part in range(cells.parts.shape[1]):
        cells.parts[cell, part] = 0
