"""Detects when most sources wait for their turn: new messages are then better left in the hand-over. No IO.

New messages of a waiting source have to queue behind its older ones, and dealing with them in turns costs
nearly twice as much as gathering. A connector that was once held up, by loading its code or by Kafka, would
deal in turns for ever if the load is more than it can manage that way, though it can gather half as much
again. So it leaves new messages where they are until most sources have had their turn, and then gathers them.
"""

from __future__ import annotations

LEAST_SOURCES = 64
"""With fewer sources there is no crowd: they may be costly ones, for which the others must not wait."""
SHARE_LEFT = 1 / 8
"""The crowd is over when at most this share of the sources that waited at first is still waiting."""
LOOK_SECONDS = 2.0
"""How often to check that fewer bytes wait."""
SHARE_DONE = 1 / 4
"""Share of the waiting bytes that must be done between two checks; otherwise waiting is of no use."""
BETWEEN_SECONDS = 5.0
"""Pause after a crowd that was given up because less was done: some of its sources are costly, too."""


class Crowd:
    """Whether to leave new messages in the hand-over. Times are of any clock, in seconds."""

    def __init__(self) -> None:
        self._left = 0.0
        """The crowd is over when no more sources than this wait; 0: there is no crowd."""
        self._most_bytes = 0.0
        """Bytes that may still wait at the next check."""
        self._look_at = 0.0
        self._not_before = 0.0

    def __bool__(self) -> bool:
        """Whether there was a crowd at the last check."""
        return self._left > 0

    def gathers(self, sources: int, *, size: int, now: float) -> None:
        """Note a crowd: most sources of a `Together` wait, and in all `sources` do, with `size` bytes."""
        if sources >= LEAST_SOURCES and now >= self._not_before:
            self._left = sources * SHARE_LEFT
            self._look(size, now)

    def lasts(self, sources: int, *, size: int, now: float) -> bool:
        """Return whether the crowd goes on; `sources` is how many have something to deal with now."""
        if self and sources <= self._left:
            self._left = 0.0
        elif self and now >= self._look_at:
            if size > self._most_bytes:
                self._left, self._not_before = 0.0, now + BETWEEN_SECONDS
            else:
                self._look(size, now)
        return bool(self)

    def _look(self, size: int, now: float) -> None:
        self._most_bytes, self._look_at = size * (1 - SHARE_DONE), now + LOOK_SECONDS
