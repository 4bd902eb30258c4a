"""What came and went in one window, per medium and group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.residency import histogram

COUNTERS = (
    "stored_blocks",
    "stored_tokens",
    "filled_blocks",
    "removed_blocks",
    "evicted_blocks",
    "evicted_tokens",
    "cleared_blocks",
    "expired_blocks",
    "reannounced_blocks",
    "unknown_removed_blocks",
)


class Flow:
    """Counters named as the columns of `schemas.rows.FlowRow`, and lifetimes in log2 buckets."""

    __slots__ = (*COUNTERS, "lifetimes")

    stored_blocks: int
    stored_tokens: int
    filled_blocks: int
    removed_blocks: int
    evicted_blocks: int
    evicted_tokens: int
    cleared_blocks: int
    expired_blocks: int
    reannounced_blocks: int
    unknown_removed_blocks: int

    def __init__(self) -> None:
        for counter in COUNTERS:
            setattr(self, counter, 0)
        self.lifetimes: npt.NDArray[np.int64] = np.zeros(histogram.BUCKETS, np.int64)

    def counts(self) -> list[int]:
        """Return the counters in the order of COUNTERS."""
        return [getattr(self, counter) for counter in COUNTERS]

    def add(self, other: Flow) -> None:
        """Add another window's counts to these."""
        for counter in COUNTERS:
            setattr(self, counter, getattr(self, counter) + getattr(other, counter))
        self.lifetimes += other.lifetimes

    @classmethod
    def restored(cls, counts: list[int], lifetimes: list[int]) -> Flow:
        """Return a flow from what `counts` and `histogram.trimmed` gave."""
        flow = cls()
        for counter, value in zip(COUNTERS, counts, strict=True):
            setattr(flow, counter, value)
        flow.lifetimes[: len(lifetimes)] = lifetimes
        return flow
