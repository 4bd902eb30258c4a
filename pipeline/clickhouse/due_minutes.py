"""Which minutes a worker has to recompute, and which notes about them stand in the store.

A minute is noted before ten-second rows of it are written, so that no row is there that nobody knows of. A
note holds until a recomputation is done that began after all writing it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

RENEWED_AFTER = 180.0
"""Seconds after which a note does not stand for writing that begins: other workers give old notes up."""


class Minute(NamedTuple):
    """A minute of a family of tables."""

    family: str
    start: datetime


class DueMinutes:
    """Follows the writing of ten-second rows, which may overlap, and what is recomputed meanwhile.

    Any insert into the store may have been taken although it failed here: its answer was lost.
    """

    def __init__(self) -> None:
        self._due: set[Minute] = set()
        self._writing: Counter[Minute] = Counter()
        """How many writers are at it."""
        self._noted: dict[Minute, int] = {}
        """Number of the last note that may be in the store, until it is known to be done there."""
        self._standing: dict[Minute, float] = {}
        """When the note was made that the store has, and of which nobody has tried to say that it is done."""
        self._last = 0

    def write(self, minutes: Collection[Minute]) -> None:
        """Rows of these minutes are about to be written: from now on their notes are not over."""
        self._writing.update(minutes)

    def withdraw(self, minutes: Collection[Minute]) -> None:
        """No row of these minutes was written, and none will be."""
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
            if minute not in self._standing or now - self._standing[minute] > RENEWED_AFTER
        ]
        notes = {minute: self._last + number for number, minute in enumerate(missing, 1)}
        self._last += len(notes)
        self._noted.update(notes)
        return notes

    def stand(self, notes: Iterable[Minute], made: float) -> None:
        """The store has these notes; `made` is when `to_note` gave them."""
        self._standing.update(dict.fromkeys(notes, made))

    def written(self, minutes: Collection[Minute]) -> None:
        """Rows of these minutes, which `write` was given, are there."""
        self.withdraw(minutes)
        self._due.update(minutes)

    def add(self, minutes: Iterable[Minute]) -> None:
        """These are due: for another reason, or they were taken and not recomputed."""
        self._due.update(minutes)

    def take(self) -> tuple[set[Minute], dict[Minute, int]]:
        """Return what is due, and the notes that do not hold any more when it is recomputed."""
        taken, self._due = self._due, set()
        over = {
            minute: self._noted[minute]
            for minute in taken
            if minute in self._noted and not self._writing[minute]
        }
        # The store may soon have it that they are done, so the next writer needs a new note in any case.
        for minute in over:
            self._standing.pop(minute, None)
        return taken, over

    def done(self, over: Mapping[Minute, int]) -> None:
        """The store has it that these notes do not hold any more."""
        for minute, number in over.items():
            if self._noted.get(minute) == number:
                del self._noted[minute]
