"""Media as tiers: GPU, CPU, and everything below."""

from __future__ import annotations

from pipeline.index.holdings.matching import CPU, DISK, GPU, LAST_BLOCK, WHOLE
from schemas.checkpoints import PoolHead

_TIERS = {"gpu": GPU, "cpu": CPU}


def tier_of(medium: str) -> int:
    """Return the tier of a canonical medium."""
    return _TIERS.get(medium, DISK)


def window_of(head: PoolHead) -> int:
    """Return what of a prefix the group of a pool needs: tokens of its end, WHOLE or LAST_BLOCK.

    Kinds that nobody knows need all of it, so that no answer promises too much.
    """
    if head.sliding_window and "sliding" in head.spec_kind:
        return head.sliding_window
    return LAST_BLOCK if head.spec_kind == "mamba" else WHOLE
