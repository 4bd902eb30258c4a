"""Whether a process that starts gets on: on a busy machine it takes as long as it takes."""

from __future__ import annotations

import os
from pathlib import Path

SHARE = 0.02
"""Of a processor. What waits for nothing to happen uses less; what compiles, on a machine with thirty times
as much to do as it has processors, more."""
LONGEST_TIMES = 20
"""So many times the patience is the end in any case: what turns in a circle works as well."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Progress:
    """Patience for `seconds` without work, from the beginning or from the last time it had done some."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._began = self._since = now
        self._worked = 0.0

    def over(self, now: float, worked: float | None) -> bool:
        """Return whether to give up; `worked` is the processor time so far, None where nobody knows."""
        if worked is not None and worked - self._worked >= SHARE * self._seconds:
            self._since, self._worked = now, worked
        return now - self._since > self._seconds or now - self._began > LONGEST_TIMES * self._seconds


def processor_seconds(group: int, proc: Path = Path("/proc")) -> float | None:
    """Return what all processes of a group have used, with children that ended; None without a /proc."""
    found: float | None = None
    for each in proc.glob("[0-9]*/stat"):
        try:
            # The name of the command, in brackets, may hold blanks and brackets.
            fields = each.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[2]) == group:
            found = (found or 0.0) + sum(map(int, fields[11:15])) / _TICKS
    return found
