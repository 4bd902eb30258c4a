"""Tokens filled again since the window began, by prefix: exact for a few thousand prefixes, bounded beyond.

A Misra-Gries summary in the batched form of Agarwal et al. ("Mergeable Summaries", PODS 2012): when the
counters run out, their median is subtracted from all of them and those that reach zero are dropped. No
library is used because a compiled loop adds to it per block, and because its state, and with it every row,
must follow from the log alone, also across checkpoints.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process import hash_table
from connectors.process.compiled import compiled, inlined
from connectors.process.template import over
from pipeline.fleet.kernel.tables import I64

REFILL: Final = np.dtype(
    [
        # First block of the chain; 0: a free slot.
        ("root", "<u8"),
        ("tokens", "<i8"),
        # Number of the hash domain, group and LoRA.
        ("lineage", "<u2"),
        # Of the deepest block filled again.
        ("depth", "<u2"),
    ],
    align=True,
)
MOST_REFILLS: Final = 4096
"""Prefixes counted at once, a power of two; the table has twice as many slots."""

USED: Final = 0
FORGOTTEN: Final = 1


class Refills(NamedTuple):
    """Counters of the open window."""

    rows: npt.NDArray[Any]
    totals: I64
    """By USED (counters in use) and FORGOTTEN (tokens that may be missing from each of them)."""


def no_refills() -> Refills:
    """Return the counters of a window in which nothing was filled again."""
    return Refills(np.zeros(2 * MOST_REFILLS, REFILL), np.zeros(2, np.int64))


@inlined
def _home(rows: Any, prefix: tuple[np.uint64, int], where: None) -> int:
    root, lineage = prefix
    mixed = (root ^ (np.uint64(lineage) << np.uint64(48))) * np.uint64(0x9E3779B97F4A7C15)
    home: int = np.int64((mixed >> np.uint64(32)) & np.uint64(len(rows) - 1))
    return home


@inlined
def _prefix_of(row: Any) -> tuple[np.uint64, int]:
    return row.root, np.int64(row.lineage)


_PARTS = {"MARK": "root", "home": _home, "key_of": _prefix_of}
slot_of_prefix = compiled(over(hash_table.look_up, "slot_of_prefix", _PARTS))
"""`slot_of_prefix(rows, (root, lineage))` returns the slot of a prefix, or -1 - (the free slot where it
belongs); rows are a power of two."""
_put = compiled(over(hash_table.put_all, "put_refills", _PARTS))


@inlined
def count_refill(refills: Refills, block: Any, tokens: int) -> None:
    """Count tokens of a block that was filled again, given as a row of BLOCK or FILL; a counter is free."""
    slot = slot_of_prefix(refills.rows, _prefix_of(block))
    if slot < 0:
        slot = -1 - slot
        refills.rows[slot].root = block.root
        refills.rows[slot].lineage = block.lineage
        refills.totals[USED] += 1
    refills.rows[slot].tokens += tokens
    refills.rows[slot].depth = max(refills.rows[slot].depth, block.depth)


def make_room(refills: Refills) -> Refills:
    """Return the counters with half of them free.

    Each time, at least as many counters as are kept lose the amount by which FORGOTTEN grows, so it stays
    below (tokens counted) / (half the number of counters).
    """
    tokens = refills.rows["tokens"][refills.rows["root"] != 0]
    # Not compiled: numba takes longer to compile it than all other loops of the fleet agent.
    median = np.partition(tokens, len(tokens) // 2)[len(tokens) // 2]
    room = no_refills()
    _take_off(refills, int(median), room)
    return room


def refills_of(live: npt.NDArray[Any], forgotten: int) -> Refills:
    """Return counters that hold these rows."""
    refills = no_refills()
    _put(live, refills.rows)
    refills.totals[USED], refills.totals[FORGOTTEN] = len(live), forgotten
    return refills


@compiled
def _take_off(refills: Refills, taken_off: int, room: Refills) -> None:
    """Subtract `taken_off` tokens from each counter; put those that have some left into the empty `room`."""
    for row in range(len(refills.rows)):
        one = refills.rows[row]
        if one.root != np.uint64(0) and one.tokens > taken_off:
            slot = -1 - slot_of_prefix(room.rows, _prefix_of(one))
            room.rows[slot] = one
            room.rows[slot].tokens -= taken_off
            room.totals[USED] += 1
    room.totals[FORGOTTEN] = refills.totals[FORGOTTEN] + taken_off
