"""Why a block was filled, as numbers; the first cause that holds is the one (docs/figures.md)."""

from __future__ import annotations

from typing import Final

PROMOTED: Final = 0
TRANSFERRED: Final = 1
GENERATED_HERE: Final = 2
PEER: Final = 3
PEER_AND_EVICTED: Final = 4
EVICTED_HERE: Final = 5
EVICTED_ELSEWHERE: Final = 6
CLEARED_BEFORE: Final = 7
COLD: Final = 8
UNKNOWN: Final = 9
REANNOUNCED: Final = 10

CAUSES: Final = (
    "promoted",
    "transferred",
    "generated",
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

PEER_AT_RECEIVERS: Final = 11
"""Counts as PEER, and apart."""
EVICTED_AT_RECEIVERS: Final = 12
"""Counts as EVICTED_ELSEWHERE, and apart."""

TRANSFERRED_PART: Final = 0
PEER_PART: Final = 1
EVICTED_PART: Final = 2
PARTS: Final = ("transferred_again", "peer_at_receivers", "evicted_at_receivers")
"""What is counted apart of the tokens of a cause, named as in the columns; the index is the number."""

NEEDED_BUCKETS: Final = 48
"""Of extra cache, in tokens: bucket k holds what 2**k suffice for and 2**(k-1) may not; the last is open."""
