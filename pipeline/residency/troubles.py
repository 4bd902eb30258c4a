"""Counts sources in trouble, and counters of all sources, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

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


def drained(sources: Iterable[SourceResidency], of: Callable[[Pools], Counter[Reason]]) -> Counter[Reason]:
    """Return the sum of one of the counters over all sources, by reason, and reset it."""
    found: Counter[Reason] = Counter()
    for source in sources:
        if counter := of(source.pools):
            found += counter
            counter.clear()
    return found
