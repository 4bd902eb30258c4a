"""ROCm ATOM, as of 2026: `atom/distributed/kv_events.py`.

Its events are vLLM's of 0.22 and 0.23, with a type of its own. Nothing in a store tells it from vLLM's; its
messages do, which have no sequence number.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field, Medium
from connectors.engines.sighting import Sighting

_TRANSFERRED = EventType(
    "BlockTransferred",
    "moved",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("from_medium", "from_medium", 2, required=True),
        Field("medium", "to_medium", 3, required=True),
        Field("group_idx", "group_idx", 4),
    ),
)
"""Blocks left one medium and came to another, as they were."""


def _recognised(seen: Sighting) -> bool:
    return seen.kind == "moved"


ATOM = Engine(
    name="atom",
    events=(_TRANSFERRED,),
    # What other hosts sent: announced when it came, and never again.
    media={"REMOTE": Medium("remote", store_only=True)},
    recognised=_recognised,
    # BlockPool.publish points a hash at the block that was computed last, and announces it every time.
    one_copy=True,
    unnumbered=True,
)
