"""Content hashes of blocks stored on other media than the GPU: those of the same blocks on the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec.structs import replace

from pipeline.reading.columns import Hashes
from pipeline.residency.counting.pool import Pool
from pipeline.residency.granularity.two_sizes import GranularPool
from schemas.events import Event, Stored
from schemas.hashes import HASH_BYTES

ByKey = Mapping[tuple[str, int], Pool | GranularPool]
"""Pools by medium and group."""
OnGpu = dict[tuple[int, bytes], Hashes]
"""Content hashes by group and the hashes of a store."""


def on_gpu(events: Iterable[Event], pools: ByKey) -> OnGpu:
    """Return the content hashes, on the GPU, of the blocks that events store on other media."""
    return {
        (event.group_idx, event.hashes): _content_of(event, pools)
        for event in events
        if type(event) is Stored and event.medium != "gpu" and len(event.hashes) % HASH_BYTES == 0
    }


def as_on_gpu(event: Stored, begun_with: OnGpu, pools: ByKey) -> Stored:
    """Return a store on another medium than the GPU with content hashes instead of links.

    They are those of the blocks that the GPU holds now, or held when the batch began: engines announce what
    leaves the GPU before they announce where it was copied to.
    """
    before = begun_with[event.group_idx, event.hashes]
    now = _content_of(event, pools)
    return replace(event, links=np.where(now != 0, now, before).astype(">u8").tobytes())


def _content_of(event: Stored, pools: ByKey) -> Hashes:
    hashes = np.frombuffer(event.hashes, ">u8").astype(np.uint64)
    gpu = pools.get(("gpu", event.group_idx))
    return gpu.contents_of(hashes) if isinstance(gpu, Pool) else np.zeros_like(hashes)
