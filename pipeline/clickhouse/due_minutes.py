"""Tracks which minutes a worker has to recompute, and which notes about them the store has.

A minute is noted before its ten-second rows are written, so that no row is ever without a note. A note holds
until a recomputation is done that began after all the writes that it covers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

RENEWED_AFTER = 180.0
"""Seconds after which a note no longer covers a write that begins: other workers give up old notes."""


class Minute(NamedTuple):
    """A minute of a family of tables."""

    family: str
    start: datetime


class DueMinutes:
    """Follows writes of ten-second rows, which may overlap, and recomputations in the meantime.

    Any insert into the store may have succeeded although it failed here, because its answer was lost.
    """

    def __init__(self) -> None:
        self._due: set[Minute] = set()
        self._writing: Counter[Minute] = Counter()
        """How many writes are under way."""
        self._numbers: dict[Minute, int] = {}
        """Number of the last note that may be in the store, until the store is known to have it as done."""
        self._noted_at: dict[Minute, float] = {}
        """When the note in the store was made, until somebody begins to mark it as done."""
        self._last = 0

    def begin_write(self, minutes: Collection[Minute]) -> None:
        """Begin a write of rows of these minutes: until it ends, their notes are kept."""
        self._writing.update(minutes)

    def cancel_write(self, minutes: Collection[Minute]) -> None:
        """End a write of which no row was, or will be, written."""
        for minute in minutes:
            self._writing[minute] -= 1
            if not self._writing[minute]:
                del self._writing[minute]

    def to_note(self, minutes: Iterable[Minute], now: float) -> dict[Minute, int]:
        """Return the notes that the store needs before rows of these minutes are written.

        `now`: seconds of a clock that never goes back.
        """
        missing = [
            minute
            for minute in minutes
            if minute not in self._noted_at or now - self._noted_at[minute] > RENEWED_AFTER
        ]
        notes = {minute: self._last + number for number, minute in enumerate(missing, 1)}
        self._last += len(notes)
        self._numbers.update(notes)
        return notes

    def noted(self, notes: Iterable[Minute], made: float) -> None:
        """Record that the store has these notes; `made` is when `to_note` returned them."""
        self._noted_at.update(dict.fromkeys(notes, made))

    def end_write(self, minutes: Collection[Minute]) -> None:
        """End a write of rows of these minutes, which `begin_write` was given: they are due."""
        self.cancel_write(minutes)
        self._due.update(minutes)

    def add(self, minutes: Iterable[Minute]) -> None:
        """Make minutes due that were not written here, or were taken and not recomputed."""
        self._due.update(minutes)

    def pop_due(self) -> tuple[set[Minute], dict[Minute, int]]:
        """Return what is due, and the notes that will be done when it is recomputed."""
        taken, self._due = self._due, set()
        over = {
            minute: self._numbers[minute]
            for minute in taken
            if minute in self._numbers and not self._writing[minute]
        }
        # The store may soon have them as done, so the next writer needs a new note in any case.
        for minute in over:
            self._noted_at.pop(minute, None)
        return taken, over

    def done(self, over: Mapping[Minute, int]) -> None:
        """Record that the store has these notes as done."""
        for minute, number in over.items():
            if self._numbers.get(minute) == number:
                del self._numbers[minute]
