"""Media as tiers (GPU, CPU, everything below), what engines need of them, and what is in doubt."""

from __future__ import annotations

from pipeline.index.holdings.usable import (
    CPU,
    DISK,
    GPU,
    IN_CHUNKS,
    LAST_BLOCK,
    NOT_NAMED,
    UNANNOUNCED_REMOVALS,
    UNKNOWN_WINDOW,
    WHOLE,
)
from schemas.pool_checkpoints import PoolHead

_TIERS = {"gpu": GPU, "cpu": CPU}
_WINDOWS = {
    "": NOT_NAMED,
    "full_attention": WHOLE,
    "mla_attention": WHOLE,
    "sink_full_attention": WHOLE,
    "mamba": LAST_BLOCK,
}
"""By the kinds that vLLM names (`KVCacheSpecKind` in its `kv_cache_interface.py`). It names chunked local
attention as well, and does not announce the size of the chunks."""


def tier_of(medium: str) -> int:
    """Return the tier of a canonical medium."""
    return _TIERS.get(medium, DISK)


def window_of(head: PoolHead) -> int:
    """Return the window of a pool's group: how much of a prefix it needs.

    That is a number of tokens at its end, or WHOLE, LAST_BLOCK, UNKNOWN_WINDOW or NOT_NAMED.
    """
    if head.sliding_window and "sliding" in head.spec_kind:
        return head.sliding_window
    return _WINDOWS.get(head.spec_kind, UNKNOWN_WINDOW)


def doubts_of(head: PoolHead) -> int:
    """Return the doubts about the blocks that a pool holds: UNANNOUNCED_REMOVALS, IN_CHUNKS, both or neither.

    vLLM's offloading names all blocks of a chunk in one event, and loads whole chunks only.
    """
    in_chunks = head.medium == "cpu" and any(
        several and size for size, several in zip(head.block_sizes, head.several_hashes, strict=True)
    )
    return UNANNOUNCED_REMOVALS * head.store_only | IN_CHUNKS * in_chunks
