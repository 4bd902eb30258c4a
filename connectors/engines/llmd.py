"""llm-d's storage backend for vLLM, as of 2026-06: `llmd_fs_backend/event_publisher.py` of llm-d-kv-cache.

Its events are vLLM's arrays of seven, each packed again inside a bin. It announces stores and nothing else;
the evictor beside it (`pvc_evictor/processes/deleter.py`), on a socket of its own, removals and nothing else.
Parents and sizes are always 0, and there are no tokens.
"""

from __future__ import annotations

from connectors.engines.beside_vllm import REMOVED, STORED
from connectors.engines.description import Engine, Medium
from connectors.engines.sighting import Sighting

_MEDIA = {
    "SHARED_STORAGE": Medium("storage", store_only=True),
    "OBJECT_STORE": Medium("obj", store_only=True),
}


def _recognised(seen: Sighting) -> bool:
    return seen.raw_medium in _MEDIA


LLMD = Engine(
    name="llm-d",
    events=(STORED, REMOVED),
    media=_MEDIA,
    recognised=_recognised,
    one_copy=True,  # a file for each block, however often it is written
    era_prefix="llm-d-",
)
