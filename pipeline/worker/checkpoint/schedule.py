"""When the checkpoint rounds of an agent begin: at multiples of a period, with a rest between them.

A round costs what it writes: a row for each window that changed, a record for each source. So an agent makes
fewer rounds where its sources are many, at the price of tables that are less fresh. One that catches up
passes many windows in a period, and nobody waits for the first of them: it makes fewer still. Where much
waits for a round, one is made at once, which bounds memory.
"""

from __future__ import annotations

import math

REST = 0.5
"""Of a period, at least, between two rounds: where rounds take long, applying must not stand behind them."""
CUT_SHARE = 1 / 8
"""Of a core's time, that cuts may take before an agent makes fewer rounds."""
MOST_PERIODS = 4
"""Periods from one round to the next of an agent that is not far behind."""
FAR_BEHIND_SECONDS = 30.0
"""An agent is far behind while it applies what has been in the log for longer."""
FAR_BEHIND_PERIODS = 8
"""Periods from one round to the next of an agent that is far behind."""


class Schedule:
    """Beginnings at equal distances. One that comes less than REST after a round's end is left out, and none
    is made up for."""

    def __init__(self, seconds: float, began: float) -> None:
        """The first beginning is `seconds` after `began`, a time of the clock that `pause` gets."""
        self._seconds = seconds
        self._began = began
        self._passed = 0
        """Beginnings since the last round that was made."""
        self._periods = 1
        """From that one to the next."""

    @property
    def every(self) -> float:
        """Seconds from one round to the next, of an agent that is not far behind."""
        return self._periods * self._seconds

    def pause(self, now: float) -> float:
        """Return how long to wait for the next beginning, from half a period to one and a half."""
        passed = (now - self._began) / self._seconds
        return (math.floor(passed + REST) + 1 - passed) * self._seconds

    def due(self, *, far_behind: bool) -> bool:
        """Return whether the round of this beginning is made; asked at each of them."""
        self._passed += 1
        if self._passed < (FAR_BEHIND_PERIODS if far_behind else self._periods):
            return False
        self._passed = 0
        return True

    def brought_forward(self) -> None:
        """A round is made before it is due."""
        self._passed = 0

    def made(self, cut_seconds: float) -> None:
        """A round was made, and its cuts took so many seconds of the processor."""
        self._periods = min(MOST_PERIODS, math.ceil(cut_seconds / (CUT_SHARE * self._seconds)))


class Lag:
    """Whether an agent is far behind, looked at from time to time."""

    def __init__(self) -> None:
        self.far_behind = False
        self._reached = -1

    def look(self, now: float, *, newest: float, reached: int, holding: bool) -> None:
        """Judge by the time in the log of the newest record offered lately, 0 if that was none.

        `reached` moves with every record applied. If it stands still, and not because applying is held,
        then nothing is left: what waits for a round are rows and records of the last ones.
        """
        if newest:
            self.far_behind = newest < now - FAR_BEHIND_SECONDS
        if reached == self._reached and not holding:
            self.far_behind = False
        self._reached = reached
