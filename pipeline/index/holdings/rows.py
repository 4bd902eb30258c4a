"""Blocks in a flat hash table: a row of 16 bytes for each, whoever holds it.

Linear probing; rows that leave draw those behind them back (Knuth 6.4, algorithm R), as in
`pipeline.residency.counting.block_table`. Where a row lies is a secret of the process.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled, fetch_ahead
from pipeline.index.holdings.words import NOTHING

Rows = npt.NDArray[Any]
ROW: Final = np.dtype([("hash", np.uint64), ("word", np.uint64)])
"""`word`: its holder, the place of its set of holders, or NOTHING in a row that is free."""
FETCHED_AHEAD: Final = 32

_HALF = np.uint64(32)


@compiled
def home(rows: Rows, spread: np.uint64, block: np.uint64) -> int:
    """Return where the search for a block begins."""
    slot: int = np.intp((((block * spread) >> _HALF) * np.uint64(len(rows))) >> _HALF)
    return slot


@compiled
def fetch_row(rows: Rows, spread: np.uint64, block: np.uint64) -> None:
    """Begin to bring the row of a block into the cache."""
    fetch_ahead(rows, home(rows, spread, block))


@compiled
def find(rows: Rows, spread: np.uint64, block: np.uint64) -> int:
    """Return the slot of a block, or the free one where it would come."""
    slot = home(rows, spread, block)
    while rows[slot].word != NOTHING and rows[slot].hash != block:
        slot += 1
        if slot == len(rows):
            slot = 0
    return slot


@compiled
def free_row(rows: Rows, spread: np.uint64, slot: int) -> None:
    """Free a slot; rows behind it move up."""
    slots = len(rows)
    free = at = slot
    while True:
        at += 1
        if at == slots:
            at = 0
        if rows[at].word == NOTHING:
            break
        own = home(rows, spread, rows[at].hash)
        # A row may not come before its own slot.
        if (at - own) % slots >= (at - free) % slots:
            rows[free] = rows[at]
            free = at
    rows[free].word = NOTHING


@compiled
def move_rows(source: Rows, target: Rows, spread: np.uint64) -> None:
    """Put all rows into a table that has none."""
    for slot in range(len(source)):
        if source[slot].word != NOTHING:
            target[find(target, spread, source[slot].hash)] = source[slot]
