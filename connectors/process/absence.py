"""When to believe that most of what was known is gone. No IO.

A file is empty while a disk is full or a mount is half done, a list is empty while its server starts, and an
engine that is not heard may only be cut off from us. To believe it wrongly ends sessions and drops figures to
nothing. So most of anything counts as gone only after proper answers have said so for a while, without a
failure in between; what disappears one by one is believed at once.
"""

from __future__ import annotations

from collections.abc import Callable

CONFIRM_SECONDS = 30.0


class Absence:
    """Judges what is missing in successive answers to one question."""

    def __init__(self, doubted: Callable[[int, int], None]) -> None:
        """`doubted` is called once for each doubt, with how many were known and how many are found."""
        self._doubted = doubted
        self._since: float | None = None
        self.pending = False
        """Whether the last answer was not believed."""

    def believed(self, known: int, found: int, now: float) -> bool:
        """Judge a proper answer; return whether what is missing in it is gone.

        `known` counted before it, `found` of them are in it: what is new says nothing of them, as it may be
        what another view of a name or another file has. `now` is in seconds; the clock may be set back.
        """
        if 2 * found >= known:
            self.pending, self._since = False, None
            return True
        if not self.pending:
            self.pending = True
            self._doubted(known, found)
        self._since = now if self._since is None else min(self._since, now)
        if now - self._since < CONFIRM_SECONDS:
            return False
        self.pending, self._since = False, None
        return True

    def unanswered(self) -> None:
        """Note that there was no proper answer: a doubt then takes the whole time again to be confirmed."""
        self._since = None
