"""How long to wait before the next try. No IO."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure in a row, in seconds."""

    first: float
    longest: float

    def pause(self, failures: int) -> float:
        """Return the pause after so many failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        return min(self.first * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), self.longest)
