"""Finds out when most sources wait for their turn: new messages are then better left in the hand-over. No IO.

New messages of a source that waits have to wait behind it, and dealing with them in turn costs nearly twice
as much as gathering. A connector that was held up once, while its code was loaded or by Kafka, would go on
dealing in turn for ever where the load is more than it can do that way, though it can gather half as much
again. So it leaves new messages where they are until most sources have had their turn, and then gathers them.
"""

from __future__ import annotations

LEAST_SOURCES = 64
"""With fewer sources there is no crowd: they may be costly ones, for which the others must not wait."""
SHARE_LEFT = 1 / 8
"""The crowd is over when no more than this share of the sources waits that waited at first."""
LOOK_SECONDS = 2.0
"""How often we look whether fewer bytes wait."""
SHARE_DONE = 1 / 4
"""Share of the waiting bytes that must be done from one look to the next; else waiting is of no use."""
BETWEEN_SECONDS = 5.0
"""Pause after a crowd of which less was done: its sources are costly ones, too."""


class Crowd:
    """Whether to leave new messages in the hand-over. Times are of any clock, in seconds."""

    def __init__(self) -> None:
        self._left = 0.0
        """Sources that may wait when it has thinned; 0: there is no crowd."""
        self._most_bytes = 0.0
        """What may wait at the next look."""
        self._look_at = 0.0
        self._not_before = 0.0

    def __bool__(self) -> bool:
        """Whether there was one when it was last looked for."""
        return self._left > 0

    def gathers(self, sources: int, *, size: int, now: float) -> None:
        """Most of those that come together wait, as so many sources do, with bytes of this size."""
        if sources >= LEAST_SOURCES and now >= self._not_before:
            self._left = sources * SHARE_LEFT
            self._look(size, now)

    def lasts(self, sources: int, *, size: int, now: float) -> bool:
        """Return whether it goes on; `sources` have something that can be dealt with now."""
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
