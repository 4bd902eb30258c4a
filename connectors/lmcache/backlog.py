"""How much of what was reported before the reading began is still unread. No IO."""

from __future__ import annotations

from collections.abc import Mapping

ALL = float("inf")
"""Everything that was reported has been read."""


class Backlog:
    """What a topic held when reading began: it shows that its servers were there when they wrote it, not now.

    What comes later counts as heard when it comes, whatever the clock of its server says.
    """

    def __init__(self, ends: Mapping[int, int]) -> None:
        """`ends`: by partition, the offset at which new records begin."""
        self._ends = ends
        self._read_to = dict.fromkeys(ends, 0.0)
        """By partition that is not yet read up to its end: time of the newest record taken."""

    @property
    def partitions(self) -> list[int]:
        """Partitions that are not yet read up to their ends."""
        return [*self._read_to]

    @property
    def read_to(self) -> float:
        """Everything that was reported before this time has been taken, seconds since the epoch."""
        return min(self._read_to.values(), default=ALL)

    def heard_at(self, partition: int, written_at: float, now: float) -> float:
        """Return when the server of a record was there; `written_at` is not positive if it is unknown."""
        if partition not in self._read_to or written_at <= 0.0:
            return now
        self._read_to[partition] = max(self._read_to[partition], min(written_at, now))
        return min(written_at, now)

    def stands_at(self, partition: int, offset: int) -> None:
        """Note that everything before `offset` has been taken."""
        if offset >= self._ends[partition]:
            self._read_to.pop(partition, None)
