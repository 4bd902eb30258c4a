"""How much of one source is dealt with in one go, so that others get their turn. No IO."""

from __future__ import annotations

PORTION_SECONDS = 0.005
"""A source gets this much time in one go, or one message where that takes longer."""
MAX_PORTION_BYTES = 256 << 10
FIRST_PORTION_BYTES = 16 << 10
"""While nothing is known of a source."""
REMEMBERED = 0.9
"""Share of the remembered cost that is kept after a cheaper portion: costly messages come back."""
REST_FROM_SECONDS = 0.02
"""A source rests for as long as its portion took if that was longer than this: the process has more to do."""


class Portion:
    """How many bytes of a source to deal with in one go."""

    def __init__(self) -> None:
        self.bytes = FIRST_PORTION_BYTES
        self._seconds_a_byte = 0.0

    def seconds(self, size: int) -> float:
        """Return how long `size` bytes may take; as long as a portion may, while nothing is known."""
        return self._seconds_a_byte * size if self._seconds_a_byte else PORTION_SECONDS

    def took(self, size: int, seconds: float) -> None:
        """Learn from what `size` bytes took."""
        self._seconds_a_byte = max(seconds / max(size, 1), REMEMBERED * self._seconds_a_byte)
        fitting = PORTION_SECONDS / self._seconds_a_byte if self._seconds_a_byte else MAX_PORTION_BYTES
        self.bytes = max(1, min(MAX_PORTION_BYTES, int(fitting)))
