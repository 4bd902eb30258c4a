"""LMCache: chunks in the tiers of its servers, as of 0.5.6 (`lmcache/v1/mp_coordinator`).

Its coordinator publishes what its servers report (#4768, open): vLLM's arrays of seven, whose block is a
chunk.
"""

from __future__ import annotations

from connectors.engines.beside_vllm import REMOVED, STORED
from connectors.engines.description import Engine, EventType, Medium
from connectors.engines.sighting import Sighting

_L1 = "lmcache-l1"
_L2_PREFIX = "lmcache-l2-"
"""Before the name of the backend."""


def _recognised(seen: Sighting) -> bool:
    return seen.raw_medium is not None and seen.raw_medium.startswith((_L1, _L2_PREFIX))


LMCACHE = Engine(
    name="lmcache",
    events=(STORED, REMOVED, EventType("AllBlocksCleared", "cleared")),
    media={_L1: Medium("cpu")},
    recognised=_recognised,
    one_copy=True,  # an object for each rank of a tensor parallel engine, under one hash
    era_prefix="lmcache-",
)
