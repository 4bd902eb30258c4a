"""Tells when most sources wait for their turn, so that what arrives is better left in the hand-over. No IO.

What comes of a source that waits has to wait behind it, and dealing with it in turn costs nearly twice as
much as gathering. A connector that was held up once, while its code was loaded or by Kafka, would go on
dealing in turn for ever where the load is more than it can do that way, though it can gather half as much
again. So it leaves what arrives alone until most sources have had their turn, and then gathers what came
meanwhile.
"""

from __future__ import annotations

LEAST_SOURCES = 64
"""Fewer are no crowd: they may be costly ones, for which the others must not wait."""
SHARE_LEFT = 1 / 8
"""Of the sources that waited, when the crowd has thinned."""
LOOK_SECONDS = 2.0
"""So often it is looked at whether less waits."""
SHARE_DONE = 1 / 4
"""Of what waits, that is done from one look to the next, or there is no use in waiting for it."""
BETWEEN_SECONDS = 5.0
"""After a crowd of which less was done: its sources are costly ones, too."""


class Crowd:
    """Whether to leave alone what arrives. Times are of any clock, in seconds."""

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
        """Tell whether it has not thinned; `sources` have something that can be dealt with now."""
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
