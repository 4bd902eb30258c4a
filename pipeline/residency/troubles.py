"""Counts sources in trouble, and counters of all sources, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pipeline.residency.pools import Pools
from pipeline.residency.source import SourceResidency

Reason = TypeVar("Reason", bound=str)


def troubles(sources: Iterable[SourceResidency]) -> dict[str, int]:
    """Return how many sources still read are partial, degraded, disconnected, drifting or limited."""
    read = [source for source in sources if source.head.closed_reason in ("", "silent")]
    trusts = [source.overall_trust().trust for source in read if source.opened and not source.head.closed_at]
    return {
        "partial": trusts.count("partial"),
        "degraded": trusts.count("degraded"),
        "disconnected": sum(source.head.connectivity.disconnected_from is not None for source in read),
        "drifting": sum(source.drifts for source in read),
        "limited": sum(source.head.limited for source in read),
    }


class Drained(Generic[Reason]):
    """The sum of one of the counters over all sources, by reason, also over those that are let go."""

    def __init__(self, of: Callable[[Pools], Counter[Reason]]) -> None:
        self._of = of
        self._found: Counter[Reason] = Counter()

    def add(self, sources: Iterable[SourceResidency]) -> None:
        """Add what was counted of these, and reset their counters."""
        for source in sources:
            if counter := self._of(source.pools):
                self._found += counter
                counter.clear()

    def take(self, sources: Iterable[SourceResidency]) -> Counter[Reason]:
        """Return the sum, with these added, and reset it."""
        self.add(sources)
        found, self._found = self._found, Counter()
        return found
