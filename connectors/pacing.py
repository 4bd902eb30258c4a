"""When an engine may be asked again: soon after an answer that helped, ever later after others. No IO."""

from __future__ import annotations

from collections.abc import Callable

UNANSWERED_ASKS = 2
"""Asks without an answer after which live messages do not wait any longer."""
FRUITLESS_PAUSE_SECONDS = 0.1
"""Pause after an answer that did not help; doubles with each further one."""
UNANSWERED_PAUSE_SECONDS = 5.0
"""Likewise after an ask without an answer."""
MAX_PAUSE_SECONDS = 60.0
_MAX_DOUBLINGS = 10


class Pacing:
    """What the asks of one source came to, and the pause before the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next_ask_at = 0.0
        self._fruitless = 0
        """Answers in a row that did not help messages that wait."""
        self.unanswered = 0
        """Asks in a row without an answer."""
        self._unanswered_live = 0

    @property
    def paused(self) -> bool:
        """Whether the engine is left alone for now."""
        return self._clock() < self._next_ask_at

    @property
    def hopeless(self) -> bool:
        """Whether live messages have waited for answers long enough."""
        return self._unanswered_live >= UNANSWERED_ASKS

    def hurry(self) -> None:
        """The engine is there: what it did not answer before, it may answer now."""
        if not self._fruitless and not self.hopeless:
            self._next_ask_at = 0.0

    def answered(self, *, progress: bool, waiting: bool) -> None:
        """Take note of an answer; `waiting` tells whether live messages wait for more."""
        self.unanswered = self._unanswered_live = 0
        self._fruitless = 0 if progress else self._fruitless + waiting
        self._pause(FRUITLESS_PAUSE_SECONDS, self._fruitless)

    def not_answered(self, *, waiting: bool) -> None:
        """Take note of an ask that nobody answered."""
        self.unanswered += 1
        self._unanswered_live += waiting
        at_once = waiting and not self.hopeless
        self._pause(UNANSWERED_PAUSE_SECONDS, 0 if at_once else self.unanswered)

    def begin_anew(self) -> None:
        """Another life of the engine: what the last one did not answer says nothing of it."""
        self.unanswered = self._unanswered_live = 0
        self._next_ask_at = 0.0

    def _pause(self, seconds: float, times: int) -> None:
        pause = seconds * 2.0 ** min(times - 1, _MAX_DOUBLINGS) if times else 0.0
        self._next_ask_at = self._clock() + min(pause, MAX_PAUSE_SECONDS)
