"""Durations in fixed log2 buckets: dense, so that rows, rollups and readers add them element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import compiled

BUCKETS: Final = 36
SMALLEST_EXPONENT: Final = -10
"""Bucket 0 holds everything below 2**-10 s (about a millisecond)."""


@compiled
def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration: k holds [2**(k-11), 2**(k-10)) s, ends open."""
    if not seconds > 0.0:
        return 0
    _, exponent = math.frexp(seconds)
    return min(max(exponent - SMALLEST_EXPONENT, 0), BUCKETS - 1)


def trimmed(counts: npt.NDArray[np.int64]) -> list[int]:
    """Return the counts without trailing zeros, as stored in a row."""
    (used,) = np.nonzero(counts)
    return counts[: used[-1] + 1].tolist() if len(used) else []


def added(counts: Sequence[int], more: Sequence[int]) -> list[int]:
    """Return the sums of two histograms without trailing zeros."""
    longer, shorter = (counts, more) if len(counts) >= len(more) else (more, counts)
    return [*(sum(pair) for pair in zip(longer, shorter, strict=False)), *longer[len(shorter) :]]
