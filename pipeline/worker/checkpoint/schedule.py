"""When the checkpoint rounds of an agent begin: at multiples of a period, with a rest between them.

A round costs what it writes: a row for each window that changed, a record for each source. So an agent with
many sources makes fewer rounds, at the price of tables that are less fresh. One that catches up passes many
windows in a period, and nobody waits for the first of them: it makes fewer still. If much waits for a round,
one is made at once, which bounds memory.
"""

from __future__ import annotations

import math

REST = 0.5
"""Least share of a period between two rounds: where rounds take long, applying must not always wait."""
CUT_SHARE = 1 / 8
"""Share of a core's time that cuts may take before an agent makes fewer rounds."""
MOST_PERIODS = 4
"""Periods from one round to the next of an agent that is not far behind."""
FAR_BEHIND_SECONDS = 30.0
"""An agent is far behind while it applies records that have been in the log for longer."""
FAR_BEHIND_PERIODS = 8
"""Periods from one round to the next of an agent that is far behind."""


class Schedule:
    """Start times at equal intervals; one less than REST after a round's end is skipped, not made up for."""

    def __init__(self, seconds: float, began: float) -> None:
        """The first start time is `seconds` after `began`, a time of the clock that `pause` gets."""
        self._seconds = seconds
        self._began = began
        self._passed = 0
        """Start times since the last round that was made."""
        self._periods = 1
        """Periods from that round to the next."""

    @property
    def every(self) -> float:
        """Seconds from one round to the next, of an agent that is not far behind."""
        return self._periods * self._seconds

    def pause(self, now: float) -> float:
        """Return how long to wait for the next start time, from half a period to one and a half."""
        passed = (now - self._began) / self._seconds
        return (math.floor(passed + REST) + 1 - passed) * self._seconds

    def due(self, *, far_behind: bool) -> bool:
        """Return whether a round is made at this start time; asked at each of them."""
        self._passed += 1
        if self._passed < (FAR_BEHIND_PERIODS if far_behind else self._periods):
            return False
        self._passed = 0
        return True

    def brought_forward(self) -> None:
        """Note that a round is made before it is due."""
        self._passed = 0

    def made(self, cut_seconds: float) -> None:
        """Note that a round was made, and that its cuts took so many seconds of processor time."""
        self._periods = min(MOST_PERIODS, math.ceil(cut_seconds / (CUT_SHARE * self._seconds)))


class Lag:
    """Whether an agent is far behind, looked at from time to time."""

    def __init__(self) -> None:
        self.far_behind = False
        self._reached = -1

    def look(self, now: float, *, newest: float, reached: int, holding: bool) -> None:
        """Judge by the time in the log of the newest record offered since the last cut, 0 if none was.

        `reached` grows with every record applied. If it does not, though applying is not held, nothing is
        left to apply: only rows and records of the last ones wait for a round.
        """
        if newest:
            self.far_behind = newest < now - FAR_BEHIND_SECONDS
        if reached == self._reached and not holding:
            self.far_behind = False
        self._reached = reached
