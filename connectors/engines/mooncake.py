"""Mooncake's master, as of 2026-09: `mooncake-store/src/kv_event/kv_event_publisher.cpp`.

Events are maps about objects in a store. `type` is as in vLLM, if the publisher is set to be compatible;
`event_type` is always there. Since #3818 lists of hashes are empty: only its key says which object it is.
"""

from __future__ import annotations

from connectors.engines.description import Engine, EventType, Field
from connectors.engines.sighting import Sighting

_TENANT = Field("tenant", "tenant_id")
_KEY = Field("object_key", "object_key")
_MEDIUM = Field("medium", "medium")
_SIZE = Field("block_size", "block_size", required=True)  # nil unless it is set
_COMPATIBLE = Field("hashes", "block_hashes", required=True)
_HASHES = Field("hashes", "seq_hashes", required=True)


def _recognised(seen: Sighting) -> bool:
    return "tenant" in seen.fields


MOONCAKE = Engine(
    name="mooncake",
    events=(
        EventType("BlockStored", "stored", (_COMPATIBLE, _SIZE, _MEDIUM, _KEY, _TENANT)),
        EventType("BlockRemoved", "removed", (_COMPATIBLE, _MEDIUM, _KEY, _TENANT)),
        EventType("AllBlocksCleared", "cleared", (_MEDIUM, _TENANT)),
        EventType("stored", "stored", (_HASHES, _SIZE, _MEDIUM, _KEY, _TENANT), rare=True),
        EventType("removed", "removed", (_HASHES, _MEDIUM, _KEY, _TENANT), rare=True),
        EventType("cleared", "cleared", (_MEDIUM, Field("tenant", "tenant_id", required=True)), rare=True),
    ),
    media={},
    recognised=_recognised,
    one_copy=True,  # every commit of an object is announced, also where it replaces what the key had
    era_prefix="mooncake-",
)
