"""LMCache: chunks in the tiers of its servers, as of 0.5.6 (`lmcache/v1/mp_coordinator`).

Its coordinator publishes what its servers report (#4768, open): vLLM's arrays of seven, whose block is a
chunk.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field, Medium
from connectors.engines.sighting import Sighting

_L1 = "lmcache-l1"
_L2_PREFIX = "lmcache-l2-"
"""Before the name of the backend."""

_STORED = EventType(
    "BlockStored",
    "stored",
    (
        Field("hashes", "block_hashes", 1, required=True),
        Field("parent", "parent_block_hash", 2),
        # 3: token_ids
        Field("block_size", "block_size", 4, required=True),
        Field("medium", "medium", 6),
    ),
)
_REMOVED = EventType(
    "BlockRemoved",
    "removed",
    (Field("hashes", "block_hashes", 1, required=True), Field("medium", "medium", 2)),
)


def _recognised(seen: Sighting) -> bool:
    return seen.raw_medium is not None and seen.raw_medium.startswith((_L1, _L2_PREFIX))


LMCACHE = Engine(
    name="lmcache",
    events=(_STORED, _REMOVED, EventType("AllBlocksCleared", "cleared")),
    media={_L1: Medium("cpu")},
    recognised=_recognised,
    one_copy=True,  # an object for each rank of a tensor parallel engine, under one hash
    era_prefix="lmcache-",
)
