"""The order in which objects were last used, kept on "shelves" (buckets) of a few hundred each."""

from __future__ import annotations

MOST = 512
"""Objects put on one shelf: a compromise between objects to look through and shelves to add up."""
Name = tuple[int, int]


class Shelves:
    """Objects in the order of their last use, and their sizes."""

    def __init__(self) -> None:
        self._shelves: dict[int, dict[Name, int]] = {}
        """Sizes in the order of use, by number of the shelf; empty shelves are dropped."""
        self._totals: dict[int, int] = {}
        """Total size on each shelf."""
        self._shelf_of: dict[Name, int] = {}
        self._put = 0
        """How often anything was put on a shelf so far."""

    def put(self, name: Name, size: int) -> None:
        """Put an object, which is on no shelf, behind all others."""
        number = self._put // MOST
        self._put += 1
        self._shelves.setdefault(number, {})[name] = size
        self._totals[number] = self._totals.get(number, 0) + size
        self._shelf_of[name] = number

    def take(self, name: Name) -> None:
        """Remove an object."""
        number = self._shelf_of.pop(name)
        self._totals[number] -= self._shelves[number].pop(name)
        if not self._shelves[number]:
            del self._shelves[number], self._totals[number]

    def size_from(self, name: Name) -> int:
        """Return the size of an object and of everything behind it."""
        own = self._shelf_of[name]
        size = sum(total for number, total in self._totals.items() if number > own)
        for each, of_it in reversed(self._shelves[own].items()):
            size += of_it
            if each == name:
                break
        return size
