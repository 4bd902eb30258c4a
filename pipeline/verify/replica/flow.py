"""What came to and went from a pool in one window."""

from __future__ import annotations

from dataclasses import dataclass, field

LAST_BUCKET = 35
FIRST_BOUND = 2.0**-10
"""Seconds; bucket 0 holds what is shorter, each further one up to twice the bound before."""


@dataclass
class Flow:
    """The figures of `schemas.rows.FlowRow`."""

    stored_blocks: int = 0
    stored_tokens: int = 0
    filled_blocks: int = 0
    removed_blocks: int = 0
    evicted_blocks: int = 0
    evicted_tokens: int = 0
    cleared_blocks: int = 0
    expired_blocks: int = 0
    reannounced_blocks: int = 0
    unknown_removed_blocks: int = 0
    lifetime_hist: list[int] = field(default_factory=list)

    def nothing(self) -> bool:
        """Return whether nothing happened, so that there is no row."""
        return not any(vars(self).values())

    def evicted(self, block_size: int, lifetime: float) -> None:
        """Count a block whose last copy the engine removed."""
        self.evicted_blocks += 1
        self.evicted_tokens += block_size
        count_seconds(self.lifetime_hist, lifetime)


def count_seconds(histogram: list[int], seconds: float) -> None:
    """Count a duration in a histogram without trailing zeros."""
    bucket, bound = 0, FIRST_BOUND
    while bucket < LAST_BUCKET and seconds >= bound:
        bucket, bound = bucket + 1, bound * 2
    count_in(histogram, bucket, 1)


def count_in(histogram: list[int], bucket: int, amount: int) -> None:
    """Add to a bucket of a histogram without trailing zeros."""
    histogram += [0] * (bucket + 1 - len(histogram))
    histogram[bucket] += amount
