"""Whether a starting process makes progress: on a busy machine no fixed time is enough."""

from __future__ import annotations

import os
from pathlib import Path

SHARE = 0.02
"""Share of a processor that counts as work. A process that waits in vain uses less; one that compiles uses
more, even on a machine with thirty times as much to do as it has processors."""
LONGEST_TIMES = 20
"""After this many times the patience it is over in any case: an endless loop is work, too."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Progress:
    """Patience for `seconds` without work, from the beginning or from the last work that was seen."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._began = self._since = now
        self._worked = 0.0

    def over(self, now: float, worked: float | None) -> bool:
        """Return whether to give up; `worked` is the processor time so far, None if not known."""
        if worked is not None and worked - self._worked >= SHARE * self._seconds:
            self._since, self._worked = now, worked
        return now - self._since > self._seconds or now - self._began > LONGEST_TIMES * self._seconds


def processor_seconds(group: int, proc: Path = Path("/proc")) -> float | None:
    """Return the processor time of all processes of a group and their ended children; None without /proc."""
    found: float | None = None
    for each in proc.glob("[0-9]*/stat"):
        try:
            # The command's name, in parentheses, may itself hold blanks and parentheses.
            fields = each.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[2]) == group:
            found = (found or 0.0) + sum(map(int, fields[11:15])) / _TICKS
    return found
