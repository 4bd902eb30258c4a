"""Causes of fills, as numbers. Which one a fill has, `kernel.fill_cause` decides (rule: docs/figures.md).

The order of the numbers is not the order of the decision, but has a meaning of its own: causes between
GENERATED_HERE and COLD are those of blocks that were lost or held elsewhere before (`kernel.follow`,
`kernel.transfers`), and REANNOUNCED is last, as all before it are fills. Bases hold the numbers, so another
order is another format (`schemas.fleet_checkpoints`).
"""

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
FILL_CAUSES: Final = CAUSES[:REANNOUNCED]
"""Causes of fills; what is announced again was not filled."""

PEER_AT_RECEIVERS: Final = 11
"""Counts as PEER, and separately as PEER_PART."""
EVICTED_AT_RECEIVERS: Final = 12
"""Counts as EVICTED_ELSEWHERE, and separately as EVICTED_PART."""

TRANSFERRED_PART: Final = 0
PEER_PART: Final = 1
EVICTED_PART: Final = 2
PARTS: Final = ("transferred_again", "peer_at_receivers", "evicted_at_receivers")
"""Parts of a cause's tokens, counted separately as well; named like the columns, numbered by index."""

NEEDED_BUCKETS: Final = 48
"""Buckets of extra cache needed: for bucket k 2**k tokens suffice and 2**(k-1) may not; the last is open."""
