"""When the checkpoint rounds of an agent begin: at multiples of a period, with a rest between them."""

from __future__ import annotations

import math

REST = 0.5
"""Of a period, at least, between two rounds: where rounds take long, applying must not stand behind them."""


class Schedule:
    """Beginnings at equal distances. One that comes less than REST after a round's end is left out, and none
    is made up for."""

    def __init__(self, seconds: float, began: float) -> None:
        """The first beginning is `seconds` after `began`, a time of the clock that `pause` gets."""
        self._seconds = seconds
        self._began = began

    def pause(self, now: float) -> float:
        """Return how long to wait for the next beginning, from half a period to one and a half."""
        passed = (now - self._began) / self._seconds
        return (math.floor(passed + REST) + 1 - passed) * self._seconds
