"""The order in which things were used, on shelves: a row of shelves of some hundred things each."""

from __future__ import annotations

MOST = 512
"""Things put on one shelf: few to look through, and few shelves to add up."""
Name = tuple[int, int]


class Shelves:
    """Things by their last use, and how large they are."""

    def __init__(self) -> None:
        self._shelves: dict[int, dict[Name, int]] = {}
        """By number, those with anything on them: sizes in the order of use."""
        self._totals: dict[int, int] = {}
        """What is on each shelf together."""
        self._shelf_of: dict[Name, int] = {}
        self._put = 0
        """Things ever put anywhere."""

    def put(self, name: Name, size: int) -> None:
        """Put a thing, which is on no shelf, behind all others."""
        number = self._put // MOST
        self._put += 1
        self._shelves.setdefault(number, {})[name] = size
        self._totals[number] = self._totals.get(number, 0) + size
        self._shelf_of[name] = number

    def take(self, name: Name) -> None:
        """Take a thing away."""
        number = self._shelf_of.pop(name)
        self._totals[number] -= self._shelves[number].pop(name)
        if not self._shelves[number]:
            del self._shelves[number], self._totals[number]

    def size_from(self, name: Name) -> int:
        """Return the size of a thing and of everything behind it."""
        own = self._shelf_of[name]
        size = sum(total for number, total in self._totals.items() if number > own)
        for each, of_it in reversed(self._shelves[own].items()):
            size += of_it
            if each == name:
                break
        return size
