"""What the operator has to know, in one line."""

from __future__ import annotations


class OperatorError(Exception):
    """Something outside the program is wrong; `str()` is one line that says what, and what to do."""

    heals = False
    """Whether it may end while the process waits: somebody starts, makes, repairs or allows something."""
    again_seconds = 0.5
    """Before the next try: what has come back is noticed within this time."""
