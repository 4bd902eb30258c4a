"""Checks that the restored state of a source is consistent, so that continuing with it cannot fail.

The types of `schemas.checkpoints` bound single values. Here values are checked against each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.residency.counting.pool import Pool
from pipeline.residency.granularity.two_sizes import GranularPool
from pipeline.residency.source import SourceResidency
from schemas.hashes import HASH_BYTES
from schemas.pool_checkpoints import PoolHead
from schemas.residency import LATEST_CHANGE

_SHOWN = 64
"""Characters of a name."""


def contradiction(source: SourceResidency, of_entries: Callable[[Pool], str | None]) -> str | None:
    """Return what of a restored source contradicts the rest; None if nothing does.

    `of_entries` returns it of the entries of a pool of one granularity.
    """
    keys = [(head.medium, head.group_idx) for head in source.head.pools]
    if len(set(keys)) < len(keys):
        return "a pool is there twice"
    for key in keys:
        pool = source.pools[key]
        if isinstance(pool, GranularPool):
            found = _of_granular(pool)
        else:
            found = _of_head(pool.head) or of_entries(pool)
        if found is not None:
            return f"{found} of {key[0][:_SHOWN]}/{key[1]} do not fit"
    return None


def _of_head(head: PoolHead) -> str | None:
    sizes = len(head.block_sizes)
    if len(set(head.block_sizes)) < sizes:
        return "block sizes"
    columns = (head.entries, head.blocks, head.removed, head.several_hashes)
    if any(len(column) != sizes for column in columns):
        return "figures by block size"
    if any(len(packed) % HASH_BYTES for _, packed in head.early_stores):
        return "early stores"
    return None


def contradiction_of_entries(pool: Pool) -> str | None:
    """Return what of a pool's entries contradicts its figures by block size; None if nothing does."""
    head, live = pool.head, pool.copies.live()
    sizes, codes = len(head.block_sizes), live["size_code"]
    if len(live) and not sizes:
        return "block sizes"
    again = pool.repeats.table.live()
    if len(again) and not head.repeats:
        return "blocks announced again"
    births = np.concatenate((live["birth"], again["birth"]))
    if not ((births >= 0) & (births <= LATEST_CHANGE)).all():
        return "births"
    if np.bincount(codes, minlength=sizes).tolist() != head.blocks:
        return "blocks"
    copies = np.bincount(codes, live["copies"], sizes).astype(np.int64)
    of_each = zip(live["copies"].tolist(), codes.tolist(), strict=True)
    known = dict(zip(live["hash"].tolist(), of_each, strict=True)) if head.other_sizes else {}
    for block, others in head.other_sizes.items():
        count, code = known.get(block, (0, 0))
        if count <= len(others) or not others or not {*others} <= {*head.block_sizes}:
            return "copies of several sizes"
        copies[code] -= len(others)
        for size in others:
            copies[head.block_sizes.index(size)] += 1
    return None if copies.tolist() == head.entries else "entries"


def _of_granular(pool: GranularPool) -> str | None:
    state = pool.head.granular
    if state is None or not 0 < state.fine_size < state.coarse_size or state.coarse_size % state.fine_size:
        return "block sizes"
    for fine in state.fine.values():
        if len({*fine.covers}) < len(fine.covers) or any(block not in state.coarse for block in fine.covers):
            return "covered blocks"
    return None
