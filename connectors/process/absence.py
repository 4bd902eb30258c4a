"""When it is believed that most of what was there is gone. No IO.

A file is empty while a disk is full or a mount is half done, a list is empty while its server comes up, and
who cannot be heard may only be cut off from us. What follows from believing it would have to be undone:
sessions end, and figures drop to nothing. So most of anything is taken to be gone only if that is found for a
while, by who answers properly all that time; what goes one by one is believed at once.
"""

from __future__ import annotations

from collections.abc import Callable

CONFIRM_SECONDS = 30.0


class Absence:
    """What one source of answers says of who is there."""

    def __init__(self, doubted: Callable[[int, int], None]) -> None:
        """`doubted` gets, once for each time, how many were known and how many are found."""
        self._doubted = doubted
        self._since: float | None = None
        self.pending = False
        """Whether the last answer was not believed."""

    def believed(self, known: int, found: int, now: float) -> bool:
        """Take a proper answer; return whether those who are missing in it are gone.

        `known` of them counted before it. `now` is seconds of any clock that goes forward.
        """
        if 2 * found >= known:
            self.pending, self._since = False, None
            return True
        if not self.pending:
            self.pending = True
            self._doubted(known, found)
        if self._since is None:
            self._since = now
        if now - self._since < CONFIRM_SECONDS:
            return False
        self.pending, self._since = False, None
        return True

    def unanswered(self) -> None:
        """There was no proper answer, so what is in doubt has to be found so for a while from now on."""
        self._since = None
