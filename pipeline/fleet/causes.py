"""Why a block was filled, as numbers; the first cause that holds is the one (docs/figures.md)."""

from __future__ import annotations

from typing import Final

PROMOTED: Final = 0
TRANSFERRED: Final = 1
PEER: Final = 2
PEER_AND_EVICTED: Final = 3
EVICTED_HERE: Final = 4
EVICTED_ELSEWHERE: Final = 5
CLEARED_BEFORE: Final = 6
COLD: Final = 7
UNKNOWN: Final = 8
REANNOUNCED: Final = 9

CAUSES: Final = (
    "promoted",
    "transferred",
    "peer",
    "peer_and_evicted",
    "evicted",
    "evicted_elsewhere",
    "cleared",
    "cold",
    "unknown",
    "reannounced",
)
"""Names as in the columns of `fills_10s`; the index is the number."""

NEEDED_BUCKETS: Final = 48
"""Of extra cache, in tokens: bucket k holds what 2**k suffice for and 2**(k-1) may not; the last is open."""
