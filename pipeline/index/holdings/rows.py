"""A flat hash table of blocks: one row of 16 bytes for each, however many pools hold it.

Where a row lies depends on a secret of the process. Rows lie in the order of their homes, so that a table can
grow in steps, from its end: see `growing_rows`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process import hash_table
from connectors.process.compiled import compiled, fetch_ahead, inlined
from connectors.process.template import over
from pipeline.index.holdings.words import NOTHING

Rows = npt.NDArray[Any]
ROW: Final = np.dtype([("hash", np.uint64), ("word", np.uint64)])
"""`word`: its holder, the place of its set of holders, or NOTHING in a row that is free."""
FETCHED_AHEAD: Final = 32

_HALF = np.uint64(32)


class Spread(NamedTuple):
    """Where the search for a block begins: its home."""

    factor: np.uint64
    """The secret."""
    slots: np.uint64
    """The length of the table; while it grows, the length that it had before."""
    grown: np.uint64
    """From this home on, blocks have moved to homes in proportion to the new length."""


@inlined
def home(rows: Rows, block: np.uint64, spread: Spread) -> int:
    """Return where the search for a block begins."""
    share = (block * spread.factor) >> _HALF
    slot = (share * spread.slots) >> _HALF
    if slot >= spread.grown:
        slot = (share * np.uint64(len(rows))) >> _HALF
    at: int = np.intp(slot)
    return at


@inlined
def _hash_of(row: Any) -> np.uint64:
    block: np.uint64 = row.hash
    return block


_PARTS = {"MARK": "word", "home": home, "key_of": _hash_of}
find_row = compiled(over(hash_table.find, "find_row", _PARTS))
"""`find_row(rows, block, spread)` returns the slot of a block, or the free one where it would come."""
free_row = compiled(over(hash_table.free, "free_row", _PARTS))
"""`free_row(rows, slot, spread)` frees a slot; rows behind it move up."""
put_rows = compiled(over(hash_table.put_all, "put_rows", _PARTS))
"""`put_rows(taken, rows, spread)` puts rows into a table that does not have them."""


@compiled
def fetch_row(rows: Rows, spread: Spread, block: np.uint64) -> None:
    """Prefetch the row of a block into the processor's cache."""
    fetch_ahead(rows, home(rows, block, spread))


@compiled
def cut_rows(rows: Rows, low: int, high: int) -> Rows:
    """Cut out the rows from slot `low` to the first free slot at or behind `high`, and return them.

    Among them are all rows whose homes are in between. No search for a row that stays leads over them.
    """
    slots = len(rows)
    end = high
    while end - high < slots and rows[end % slots].word != NOTHING:
        end += 1
    taken = np.empty(end - low, ROW)
    count = 0
    for at in range(low, end):
        slot = at % slots
        if rows[slot].word != NOTHING:
            taken[count] = rows[slot]
            rows[slot].word = NOTHING
            count += 1
    return taken[:count]
