"""Open addressing with linear probing: one source for all flat hash tables of compiled code.

A table is an array of rows, at least one of which is free: its MARK is 0. When a row is freed, those behind
it move back towards their home slots (Knuth 6.4, algorithm R), so searches find no gap.

The functions are templates: `over` fills in MARK, `home` and `key_of` for each table. `where` is what else
home slots depend on, such as a secret.
"""

from __future__ import annotations

from typing import Any

from connectors.process.compiled import inlined
from connectors.process.template import part

MARK: str = ""
"""The field of a row that is 0 where it is free."""
home: Any = part
"""`home(rows, key, where)` returns the slot where the search for a key begins."""
key_of: Any = part
"""`key_of(row)` returns the key of a row."""


@inlined
def moved(into: int, slot: int, where: Any = None) -> None:
    """Let what is kept beside the rows follow a row that moves from `slot` to `into`."""


@inlined
def _next(slot: int, slots: int) -> int:
    slot += 1
    return slot if slot < slots else 0


@inlined
def _way(begin: int, end: int, slots: int) -> int:
    """Return how many slots `end` is behind `begin`, around the end of the table."""
    way = end - begin
    return way if way >= 0 else way + slots


def find(rows: Any, key: Any, where: Any = None) -> int:
    """Return the slot of a key, or the free one where it would come."""
    slot: int = home(rows, key, where)
    while rows[slot][MARK] != 0 and key_of(rows[slot]) != key:
        slot = _next(slot, len(rows))
    return slot


def look_up(rows: Any, key: Any, where: Any = None) -> int:
    """Return the slot of a key, or -1 - (the free one where it would come)."""
    slot: int = home(rows, key, where)
    while rows[slot][MARK] != 0:
        if key_of(rows[slot]) == key:
            return slot
        slot = _next(slot, len(rows))
    return -1 - slot


def free(rows: Any, slot: int, where: Any = None) -> None:
    """Free a slot; rows behind it move up."""
    at = hole = slot
    while True:
        at = _next(at, len(rows))
        if rows[at][MARK] == 0:
            break
        own = home(rows, key_of(rows[at]), where)
        # A row may not come before its home slot.
        if _way(own, at, len(rows)) >= _way(hole, at, len(rows)):
            rows[hole] = rows[at]
            moved(hole, at, where)
            hole = at
    rows[hole][MARK] = 0


def put_all(rows: Any, into: Any, where: Any = None) -> None:
    """Put the rows of an array that are not free into a table that has none of them, and room."""
    for at in range(len(rows)):
        if rows[at][MARK] != 0:
            slot = home(into, key_of(rows[at]), where)
            while into[slot][MARK] != 0:
                slot = _next(slot, len(into))
            into[slot] = rows[at]
