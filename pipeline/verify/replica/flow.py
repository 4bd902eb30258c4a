"""What came to and went from a pool in one window."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import frexp

LAST_BUCKET = 35
FIRST_BOUND = 2.0**-10
"""Seconds; bucket 0 holds what is shorter, each further one up to twice the bound before."""
_EXPONENTS = 1 - frexp(FIRST_BOUND)[1]


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

    def evicted(self, block_size: int, lifetime: float, blocks: int = 1) -> None:
        """Count blocks of one lifetime whose last copy the engine removed."""
        self.evicted_blocks += blocks
        self.evicted_tokens += blocks * block_size
        count_seconds(self.lifetime_hist, lifetime, blocks)


def count_seconds(histogram: list[int], seconds: float, amount: int = 1) -> None:
    """Count a duration `amount` times in a histogram without trailing zeros."""
    # frexp gives the power of two above; a duration of exactly the first bound is in bucket 1.
    bucket = 0 if seconds < FIRST_BOUND else min(frexp(seconds)[1] + _EXPONENTS, LAST_BUCKET)
    count_in(histogram, bucket, amount)


def count_in(histogram: list[int], bucket: int, amount: int) -> None:
    """Add to a bucket of a histogram without trailing zeros."""
    if bucket >= len(histogram):
        histogram += [0] * (bucket + 1 - len(histogram))
    histogram[bucket] += amount
