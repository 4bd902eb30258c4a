"""Lifetimes in fixed log2 buckets: dense, so that rows, rollups and readers add them element by element."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BUCKETS = 36
SMALLEST_EXPONENT = -10
"""Bucket 0 holds everything below 2**-10 s (about a millisecond)."""


def bucket_of(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Return the bucket of each duration: k holds [2**(k-11), 2**(k-10)) s, ends open."""
    _, exponent = np.frexp(np.maximum(seconds, 0.0))
    bucket = np.where(seconds <= 0.0, 0, exponent - SMALLEST_EXPONENT)
    return np.clip(bucket, 0, BUCKETS - 1).astype(np.intp)


def count(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return how many durations fall into each of the BUCKETS buckets."""
    return np.bincount(bucket_of(seconds), minlength=BUCKETS).astype(np.int64)


def trimmed(counts: npt.NDArray[np.int64]) -> list[int]:
    """Return the counts without trailing zeros, as stored in a row."""
    (used,) = np.nonzero(counts)
    return counts[: used[-1] + 1].tolist() if len(used) else []
