"""When most sources wait for their turn, so that what arrives had better wait as it is. No IO.

What comes of a source that waits has to wait behind it, and dealing with it in turn costs twice as much as
gathering. So a connector that was held up once, while its code was loaded or by Kafka, would go on dealing in
turn for ever if the load is more than it can do that way, though it can gather half as much again. It leaves
what arrives alone then, until most sources have had their turn: all that came meanwhile is gathered.
"""

from __future__ import annotations

import math

LEAST_SOURCES = 64
"""Fewer are no crowd: they may be costly ones, for which the others must not wait."""
SHARE_LEFT = 1 / 8
"""Of those that waited, when the crowd has thinned."""
MOST_SECONDS = 2.0
"""For so long others wait for a crowd."""
BETWEEN_SECONDS = 5.0
"""After a crowd that has not thinned by then: its sources are costly ones, too."""


class Crowd:
    """Whether to leave alone what arrives. Times are of any clock, seconds."""

    def __init__(self) -> None:
        self._left = 0.0
        """Sources that may wait when it has thinned; 0: there is none."""
        self._until = -math.inf
        self._again = -math.inf

    def __bool__(self) -> bool:
        """Whether there is one, as far as was asked."""
        return self._left > 0

    def came(self, sources: int, waiting: int, now: float) -> None:
        """Messages of several sources came together, and so many of these were waiting."""
        if waiting >= LEAST_SOURCES and 2 * waiting >= sources and now >= self._again:
            self._left, self._until = waiting * SHARE_LEFT, now + MOST_SECONDS

    def lasts(self, waiting: int, now: float) -> bool:
        """Tell whether it has not thinned; `waiting` sources have something that can be dealt with."""
        if self and waiting <= self._left:
            self._left = 0.0
        elif self and now >= self._until:
            self._left, self._again = 0.0, now + BETWEEN_SECONDS
        return bool(self)
