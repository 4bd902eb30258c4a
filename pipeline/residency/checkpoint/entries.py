"""Entries of block tables as columns of checkpoint records, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import Hashes
from pipeline.residency.counting.block_entries import BlockColumns, Entries
from pipeline.residency.counting.pool import Pool
from schemas.hashes import HASH_BYTES
from schemas.pool_checkpoints import PoolEntries

RECORD_ENTRIES = 160_000
"""Entries per checkpoint record: 34 bytes each, 42 with content hashes, well below the topic's 8 MB bound."""

_HASHES: Final = np.dtype("<u8")
_BIRTHS: Final = np.dtype("<f8")
_COPIES: Final = np.dtype("<i4")
_SIZES: Final = np.dtype("<u4")
_DEPTHS: Final = np.dtype("<u2")


class Snapshot(NamedTuple):
    """The entries of a pool as they were at one moment."""

    medium: str
    group_idx: int
    entries: Entries
    block_sizes: npt.NDArray[np.uint32]
    """Of each entry."""
    contents: Hashes
    """Of each entry; empty where the pool keeps none."""
    repeats: bool = False
    """As in `PoolEntries`."""


def snapshots(pool: Pool) -> Iterator[Snapshot]:
    """Yield copies of a pool's entries, in the time that copying this much memory takes."""
    for copies in (pool.copies, pool.repeats.table):
        live = copies.live()
        contents = copies.contents_of(live["hash"]) if copies.keeps_contents else np.empty(0, np.uint64)
        sizes = pool.sizes_of(live["size_code"])
        head, repeats = pool.head, copies is pool.repeats.table
        yield Snapshot(head.medium, head.group_idx, live, sizes, contents, repeats)


def in_parts(pools: Sequence[Snapshot]) -> Iterator[list[PoolEntries]]:
    """Yield the entries in portions, none of more than RECORD_ENTRIES."""
    part: list[PoolEntries] = []
    room = RECORD_ENTRIES
    for pool in pools:
        start = 0
        while start < len(pool.entries):
            if room == 0:
                yield part
                part, room = [], RECORD_ENTRIES
            end = min(len(pool.entries), start + room)
            part.append(_packed_entries(pool, start, end))
            room -= end - start
            start = end
    if part:
        yield part


def _packed_entries(pool: Snapshot, start: int, end: int) -> PoolEntries:
    entries = pool.entries[start:end]
    return PoolEntries(
        pool.medium,
        pool.group_idx,
        _packed(entries["hash"], _HASHES),
        _once(_packed(entries["copies"], _COPIES), _COPIES),
        _packed(entries["birth"], _BIRTHS),
        _once(_packed(pool.block_sizes[start:end], _SIZES), _SIZES),
        _packed(entries["root"], _HASHES),
        _packed(entries["depth"], _DEPTHS),
        _packed(pool.contents[start:end], _HASHES),
        pool.repeats,
    )


def unpacked_entries(pool: Pool, entries: PoolEntries) -> BlockColumns:
    """Return the entries of one part of a record."""
    hashes = np.frombuffer(entries.hashes, _HASHES)
    count = len(hashes)
    sizes = _each(np.frombuffer(entries.block_sizes, _SIZES), count)
    # Where nothing is known of chains, the record has no columns for them. All is copied, as compiled code
    # needs writable arrays.
    roots = np.frombuffer(entries.roots or bytes(count * HASH_BYTES), _HASHES)
    depths = np.frombuffer(entries.depths or bytes(count * _DEPTHS.itemsize), _DEPTHS)
    return BlockColumns(
        hashes.astype(np.uint64),
        _each(np.frombuffer(entries.copies, _COPIES), count).astype(np.int32),
        np.frombuffer(entries.births, _BIRTHS).astype(np.float64),
        pool.codes_of(sizes),
        roots.astype(np.uint64),
        depths.astype(np.uint16),
        np.frombuffer(entries.contents or bytes(count * HASH_BYTES), _HASHES).astype(np.uint64),
    )


def _packed(column: npt.NDArray[Any], kind: np.dtype[Any]) -> bytes:
    return column.astype(kind, copy=False).tobytes()


def _once(packed: bytes, kind: np.dtype[Any]) -> bytes:
    """Return a packed column, or a single item of it where all are the same."""
    first = packed[: kind.itemsize]
    return first if packed == first * (len(packed) // kind.itemsize) else packed


def _each(column: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Return a column of `count` items that may have been written once."""
    return np.broadcast_to(column, count) if len(column) == 1 else column
