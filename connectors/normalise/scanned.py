"""What the scanner made of payloads: their encoded batches, and a table of what became of each."""

from __future__ import annotations

import struct

from connectors.normalise.columns import DONE, PUBLISHED_AT, SEQ, STATUS, STRETCH_END
from connectors.normalise.scanner.layout import Bytes, Ints

_FLOAT = struct.Struct("=d")
_BITS = struct.Struct("=q")


class Scanned:
    """What became of the payloads of one bundle: column i is payload i, rows are those of `columns`."""

    __slots__ = ("columns", "encoded", "rows")

    def __init__(self, encoded: Bytes, columns: Ints) -> None:
        """`encoded` are `schemas.events.Batch`es, one after the other, perhaps of other bundles as well."""
        self.encoded = encoded
        self.columns = columns
        self.rows: list[list[int]] = columns.tolist()
        """The same numbers: where there are few, Python is faster with its own."""

    def stretch(self, first: int, due: int) -> int:
        """Return the end (exclusive) of payloads that begin at `first`, are done, and numbered from `due`."""
        rows = self.rows
        if rows[STATUS][first] != DONE or rows[SEQ][first] != due:
            return first
        return rows[STRETCH_END][first]

    def published_at(self, payload: int) -> float:
        """Return the engine's time of a payload that is done, seconds since the epoch."""
        at: float = _FLOAT.unpack(_BITS.pack(self.rows[PUBLISHED_AT][payload]))[0]
        return at
