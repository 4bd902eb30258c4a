"""When an engine may be asked again: soon after an answer that helped, later and later otherwise. No IO."""

from __future__ import annotations

from collections.abc import Callable

from connectors.process.backoff import Backoff

UNANSWERED_ASKS = 2
"""After this many asks without an answer live messages wait no longer."""
FRUITLESS = Backoff(first=0.1, longest=60.0)
"""Pauses after answers that did not help."""
UNANSWERED = Backoff(first=5.0, longest=60.0)
"""Pauses after asks without an answer."""


class Pacing:
    """How the asks of one source ended, and the pause before the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paused_at = 0.0
        self._pause_seconds = 0.0
        self._fruitless = 0
        """Answers in a row that did not help messages that wait."""
        self.unanswered = 0
        """Asks in a row without an answer."""
        self._unanswered_live = 0

    @property
    def paused(self) -> bool:
        """Whether the engine is left alone for now."""
        # Setting the clock back must not lengthen a pause.
        return 0 <= self._clock() - self._paused_at < self._pause_seconds

    @property
    def hopeless(self) -> bool:
        """Whether live messages have waited for answers long enough."""
        return self._unanswered_live >= UNANSWERED_ASKS

    def hurry(self) -> None:
        """Cut short the pause after an unanswered ask: the engine is there, and may answer now."""
        if not self._fruitless and not self.hopeless:
            self._pause_seconds = 0.0

    def answered(self, *, progress: bool, waiting: bool) -> None:
        """Note an answer; `waiting` says whether live messages wait for more."""
        self.unanswered = self._unanswered_live = 0
        self._fruitless = 0 if progress else self._fruitless + waiting
        self._pause(FRUITLESS.pause(self._fruitless))

    def not_answered(self, *, waiting: bool) -> None:
        """Note an ask without an answer; `waiting` as in `answered`."""
        self.unanswered += 1
        self._unanswered_live += waiting
        at_once = waiting and not self.hopeless
        self._pause(UNANSWERED.pause(0 if at_once else self.unanswered))

    def begin_anew(self) -> None:
        """Start over for another engine session: what the last one left unanswered says nothing about it."""
        self.unanswered = self._unanswered_live = 0
        self._pause_seconds = 0.0

    def _pause(self, seconds: float) -> None:
        self._paused_at, self._pause_seconds = self._clock(), seconds
