"""Bounds of the numbers on a metrics page, by the field of `EngineCounters` they go into. No IO."""

from __future__ import annotations

import math
from dataclasses import dataclass

from connectors.process.errors import DataError
from schemas.reasons import FigureRefusal

MAX_DIGITS = 20
"""Of a whole number in a label; all bounds have fewer, and longer ones are slow to parse."""


class FigureRefused(DataError, ValueError):
    """A number on a page that cannot be used."""

    reason: FigureRefusal
    line = "{reason}"


@dataclass(frozen=True, slots=True)
class Bound:
    """The numbers that a field takes: from 0 to `most`, and only whole ones if `whole`."""

    most: float
    whole: bool

    def of_value(self, value: float) -> float:
        """Return a sample's value as the field has it. Raises FigureRefused."""
        if not math.isfinite(value):
            raise FigureRefused("not_a_number")
        if value < 0:
            raise FigureRefused("negative")
        if value > self.most:
            raise FigureRefused("too_large")
        return int(value) if self.whole else value

    def of_label(self, text: str) -> int:
        """Return the whole number that a label's value is. Raises FigureRefused."""
        if not (text.isascii() and text.isdigit()):
            raise FigureRefused("not_a_number")
        if len(text) > MAX_DIGITS or int(text) > self.most:
            raise FigureRefused("too_large")
        return int(text)


_TOKENS = Bound(2**53, whole=True)
"""The page has doubles, which are exact for whole numbers up to here."""

BOUNDS = {
    "prefix_cache_queries": _TOKENS,
    "prefix_cache_hits": _TOKENS,
    "external_queries": _TOKENS,
    "external_hits": _TOKENS,
    "capacity_blocks": Bound(2**32 - 1, whole=True),
    "block_size": Bound(2**32 - 1, whole=True),
    "kv_cache_usage": Bound(1, whole=False),
    "prefill_seconds": Bound(2**53, whole=False),
    "prefill_tokens": _TOKENS,
    "cpu_capacity_tokens": _TOKENS,
    "unused_blocks": Bound(2**16, whole=True),
    "computed_tokens": _TOKENS,
    "transferred_tokens": _TOKENS,
    "reloaded_tokens": _TOKENS,
    "generation_tokens": _TOKENS,
}
"""By field of `EngineCounters`. All of them fit the columns of the tables, and sums of thousands do."""
RANKS = Bound(2**16 - 1, whole=True)
