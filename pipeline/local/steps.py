"""Where parts that start say how far they are."""

from __future__ import annotations

from typing import Protocol


class Steps(Protocol):
    """A start in the eyes of whoever waits for it."""

    def step(self, text: str) -> None:
        """Say what goes on now, until the next step; what changes within a step stands after a colon."""

    def tell(self, line: str) -> None:
        """Say what has happened, in a line that stays."""
