"""What is not as it should be in sources, counted for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pipeline.residency.source import SourceResidency
from schemas.reasons import GaveUpRepeats, WithoutContent


def troubles(sources: Iterable[SourceResidency]) -> dict[str, int]:
    """Return how many are partial, degraded, disconnected, drifting or limited, of those that are read."""
    read = [source for source in sources if source.head.closed_reason in ("", "silent")]
    trusts = [source.overall_trust().trust for source in read if source.opened and not source.head.closed_at]
    return {
        "partial": trusts.count("partial"),
        "degraded": trusts.count("degraded"),
        "disconnected": sum(source.head.connectivity.disconnected_from is not None for source in read),
        "drifting": sum(source.drifts for source in read),
        "limited": sum(source.head.limited for source in read),
    }


def without_content(sources: Iterable[SourceResidency]) -> Counter[WithoutContent]:
    """Return how many blocks got no content hash, and why, since this was looked at last."""
    found: Counter[WithoutContent] = Counter()
    for source in sources:
        if source.pools.without_content:
            found += source.pools.take_without_content()
    return found


def gave_up_repeats(sources: Iterable[SourceResidency]) -> Counter[GaveUpRepeats]:
    """Return how many pools forgot what was announced again, and why, since this was looked at last."""
    found: Counter[GaveUpRepeats] = Counter()
    for source in sources:
        found += source.pools.take_gave_up_repeats()
    return found
