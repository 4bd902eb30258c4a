"""Which minutes a worker has to recompute, and which notes about them stand in the store.

A minute is noted before ten-second rows of it are written, so that no row is there that nobody knows of. A
note holds until a recomputation is done that began after all writing it stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple


class Minute(NamedTuple):
    """A minute of a family of tables."""

    family: str
    start: datetime


class DueMinutes:
    """Follows the writing of ten-second rows, which may overlap, and what is recomputed meanwhile."""

    def __init__(self) -> None:
        self._due: set[Minute] = set()
        self._writing: Counter[Minute] = Counter()
        """How many writers are at it."""
        self._standing: dict[Minute, int] = {}
        """Number of the note."""
        self._last = 0

    def to_note(self, minutes: Iterable[Minute]) -> dict[Minute, int]:
        """Return the notes that are needed before rows of these minutes are written."""
        missing = [minute for minute in minutes if minute not in self._standing]
        return {minute: self._last + number for number, minute in enumerate(missing, 1)}

    def write(self, minutes: Iterable[Minute], notes: Mapping[Minute, int]) -> None:
        """The notes stand; rows of the minutes are about to be written."""
        self._standing.update(notes)
        self._last = max([self._last, *notes.values()])
        self._writing.update(minutes)

    def written(self, minutes: Iterable[Minute]) -> None:
        """Rows of these minutes, which `write` was told of, are there."""
        for minute in minutes:
            self._due.add(minute)
            self._writing[minute] -= 1
            if not self._writing[minute]:
                del self._writing[minute]

    def add(self, minutes: Iterable[Minute]) -> None:
        """These are due for another reason."""
        self._due.update(minutes)

    def take(self) -> tuple[set[Minute], dict[Minute, int]]:
        """Return what is due, and the notes that do not hold any more when it is recomputed."""
        taken, self._due = self._due, set()
        over = {
            minute: self._standing.pop(minute)
            for minute in taken
            if minute in self._standing and not self._writing[minute]
        }
        return taken, over

    def put_back(self, taken: Iterable[Minute], over: Mapping[Minute, int]) -> None:
        """What was taken was not recomputed."""
        self._due.update(taken)
        for minute, number in over.items():
            self._standing.setdefault(minute, number)
