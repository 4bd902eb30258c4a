"""How long a fetch that has little waits at the broker for more records.

A fetch costs the same whatever it has, and so does applying what came of one partition at once. Nothing shows
of records before the next round of checkpoints, so fetches may be fewer where rounds are. But a drained
partition waits for the fetch that is out for the others: where much is left to apply, that comes back soon.
"""

from __future__ import annotations

SHORTEST = 0.05
LONGEST = 0.4
SHARE = 0.1
"""Of the time between two rounds."""


def fetch_wait(round_seconds: float, *, far_behind: bool) -> float:
    """Return the seconds of an agent that makes a round every `round_seconds`."""
    return SHORTEST if far_behind else max(SHORTEST, min(LONGEST, SHARE * round_seconds))
