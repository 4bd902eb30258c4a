"""Entries of block tables as columns of checkpoint records, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from pipeline.residency.counting.block_table import ENTRY, BlockColumns, Entries
from pipeline.residency.counting.pool import Pool
from schemas.checkpoints import PoolEntries

RECORD_ENTRIES = 200_000
"""Entries per checkpoint record: 34 bytes each, well below the topic's 8 MB bound."""

_ROOTS: Final = np.dtype("<u8")
_DEPTHS: Final = np.dtype("<u2")


def all_entries(pools: Iterable[Pool]) -> list[list[PoolEntries]]:
    """Return everything there is, as of one or more records."""
    return _records((pool, pool.table.live()) for pool in pools)


def changed_entries(pools: Iterable[Pool]) -> list[list[PoolEntries]]:
    """Return, as of one or more records, what went since the last checkpoint, then what was written since."""
    return _records(part for pool in pools for part in ((pool, _gone(pool)), (pool, pool.table.changed())))


def restore_entries(pool: Pool, entries: PoolEntries) -> None:
    """Set the entries of one part of a record."""
    count = len(entries.block_sizes) // 4
    # Copies, because compiled code takes arrays that can be written. Where nothing is known of chains, the
    # record has no columns for them.
    pool.put(
        BlockColumns(
            np.frombuffer(entries.hashes, "<u8").astype(np.uint64),
            np.frombuffer(entries.copies, "<i4").astype(np.int32),
            np.frombuffer(entries.births, "<f8").astype(np.float64),
            pool.codes_of(np.frombuffer(entries.block_sizes, "<u4")),
            np.frombuffer(entries.roots or bytes(count * _ROOTS.itemsize), _ROOTS).astype(np.uint64),
            np.frombuffer(entries.depths or bytes(count * _DEPTHS.itemsize), _DEPTHS).astype(np.uint16),
        )
    )


def _records(parts: Iterable[tuple[Pool, Entries]]) -> list[list[PoolEntries]]:
    """Return the parts of one or more records, none of more than RECORD_ENTRIES entries.

    Entries are set one by one when they are read, so what one record cannot hold may follow in deltas.
    """
    records: list[list[PoolEntries]] = [[]]
    room = RECORD_ENTRIES
    for pool, entries in parts:
        for start in range(0, len(entries), RECORD_ENTRIES):
            part = entries[start : start + RECORD_ENTRIES]
            if len(part) > room:
                records.append([])
                room = RECORD_ENTRIES
            room -= len(part)
            records[-1].append(_packed(pool, part))
    return records


def _packed(pool: Pool, entries: Entries) -> PoolEntries:
    sizes = pool.sizes_of(entries["size_code"]).astype("<u4")
    sizes[entries["copies"] == 0] = 0
    return PoolEntries(
        pool.head.medium,
        pool.head.group_idx,
        entries["hash"].astype("<u8").tobytes(),
        entries["copies"].astype("<i4").tobytes(),
        entries["birth"].astype("<f8").tobytes(),
        sizes.tobytes(),
        entries["root"].astype(_ROOTS).tobytes(),
        entries["depth"].astype(_DEPTHS).tobytes(),
    )


def _gone(pool: Pool) -> Entries:
    """Return an entry without copies for each block of the last checkpoint that left."""
    hashes = np.concatenate(pool.gone) if pool.gone else np.empty(0, np.uint64)
    entries = np.zeros(len(hashes), ENTRY)
    entries["hash"] = hashes
    return entries
