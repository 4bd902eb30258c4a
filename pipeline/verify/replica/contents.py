"""Content hashes of stored blocks: by the links of the event, or those of the same blocks on the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.two_sizes import Pools
from schemas.events import Event, Stored
from schemas.hashes import HASH_BYTES, unpack_hashes

Named = dict[tuple[int, int], int]
"""Content hashes by group and hash."""


def named_on_gpu(events: Iterable[Event], pools: Pools) -> Named:
    """Return those that the GPU has for blocks that these events store on other media."""
    found: Named = {}
    for event in events:
        if isinstance(event, Stored) and event.medium != "gpu" and not len(event.hashes) % HASH_BYTES:
            contents = _on_gpu(pools, event.group_idx)
            for one in unpack_hashes(event.hashes) if contents else ():
                if one in contents:
                    found[event.group_idx, one] = contents[one]
    return found


def links_of(event: Stored) -> tuple[int, ...]:
    """Return the links of the blocks of a store; none where they are not known."""
    if event.medium != "gpu" or len(event.links) != len(event.hashes):
        return ()
    return unpack_hashes(event.links)


def contents_of(event: Stored, pools: Pools, before: Named) -> Mapping[int, int]:
    """Return the content hashes of the blocks of a store, where they are known, by hash.

    On media other than the GPU they are those of the same blocks on the GPU, now or `before` the batch.
    """
    hashes = unpack_hashes(event.hashes)
    if event.medium != "gpu":
        now = _on_gpu(pools, event.group_idx)
        return {
            one: now.get(one) or before[event.group_idx, one]
            for one in hashes
            if one in now or (event.group_idx, one) in before
        }
    links = links_of(event)
    pool = pools["gpu", event.group_idx]
    if not isinstance(pool, Copies) or not (links or pool.contents):
        return {}
    parent = None if event.parent is None else unpack_hashes(event.parent)[0]
    return pool.contents_along(hashes, links, parent)


def _on_gpu(pools: Pools, group: int) -> Mapping[int, int]:
    pool = pools.get(("gpu", group))
    return pool.contents if isinstance(pool, Copies) else {}
