"""Which capacities a server's newest declaration no longer has. No IO.

A declaration comes as one batch for each compartment, all of one revision. It replaces the one before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple


class Compartment(NamedTuple):
    """A part of a server's memory or storage that has a capacity of its own."""

    backend: str
    """As in `Place`."""
    medium: str


@dataclass(slots=True)
class _Declaration:
    revision: tuple[int, int]
    """Session of the server, and the number of the declaration in it."""
    compartments: set[Compartment]


class Declarations:
    """The capacities that each server declared last of its own compartments."""

    def __init__(self) -> None:
        self._newest: dict[str, _Declaration] = {}

    def take(self, server: str, revision: tuple[int, int], declared: Compartment | None) -> set[Compartment]:
        """Take the next compartment of a declaration; return those that no longer have a capacity.

        When a new declaration begins, these are all that the one before had: those that it repeats get a
        capacity again by their own batches. None: no limit, or that of what several servers share.
        """
        known = self._newest.setdefault(server, _Declaration(revision, set()))
        before: set[Compartment] = set()
        if revision > known.revision:
            before, self._newest[server] = known.compartments, _Declaration(revision, set())
        if declared is not None and revision >= known.revision:
            self._newest[server].compartments.add(declared)
        return before - {declared}

    def keep(self, servers: Collection[str]) -> None:
        """Forget all but these servers."""
        self._newest = {server: one for server, one in self._newest.items() if server in servers}
