"""When the checkpoint rounds of an agent begin: at multiples of a period, with a rest between them.

A round costs what it writes: a row for each window that changed, a record for each source. An agent that
catches up passes many windows in a period, and nobody waits for the first of them: it makes fewer rounds.
"""

from __future__ import annotations

import math

REST = 0.5
"""Of a period, at least, between two rounds: where rounds take long, applying must not stand behind them."""
FAR_BEHIND_SECONDS = 30.0
"""An agent is far behind while what it applies has been in the log for longer."""
FAR_BEHIND_PERIODS = 8
"""Periods from one round to the next of an agent that is far behind."""


class Schedule:
    """Beginnings at equal distances. One that comes less than REST after a round's end is left out, and none
    is made up for."""

    def __init__(self, seconds: float, began: float) -> None:
        """The first beginning is `seconds` after `began`, a time of the clock that `pause` gets."""
        self._seconds = seconds
        self._began = began
        self._left_out = 0

    def pause(self, now: float) -> float:
        """Return how long to wait for the next beginning, from half a period to one and a half."""
        passed = (now - self._began) / self._seconds
        return (math.floor(passed + REST) + 1 - passed) * self._seconds

    def due(self, *, far_behind: bool) -> bool:
        """Return whether the round of this beginning is made; asked at each of them."""
        self._left_out += 1
        if far_behind and self._left_out < FAR_BEHIND_PERIODS:
            return False
        self._left_out = 0
        return True
