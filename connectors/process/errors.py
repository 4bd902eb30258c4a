"""What the operator has to know, in one line."""

from __future__ import annotations


class OperatorError(Exception):
    """Something outside the program is wrong; `str()` is one line that says what, and what to do."""
