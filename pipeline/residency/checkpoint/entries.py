"""Entries of block tables as columns of checkpoint records, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.reading.columns import Hashes
from pipeline.residency.counting.block_table import BlockColumns, Entries
from pipeline.residency.counting.pool import Pool
from schemas.checkpoints import PoolEntries
from schemas.hashes import HASH_BYTES

RECORD_ENTRIES = 160_000
"""Entries per checkpoint record: 34 bytes each, 42 with content hashes, well below the topic's 8 MB bound."""

_HASHES: Final = np.dtype("<u8")
_BIRTHS: Final = np.dtype("<f8")
_COPIES: Final = np.dtype("<i4")
_SIZES: Final = np.dtype("<u4")
_DEPTHS: Final = np.dtype("<u2")


def packed_entries(pool: Pool, entries: Entries, gone: Hashes | None = None) -> PoolEntries:
    """Return the columns of entries, and of the blocks that left before."""
    return PoolEntries(
        pool.head.medium,
        pool.head.group_idx,
        _packed(entries["hash"], _HASHES),
        _once(_packed(entries["copies"], _COPIES), _COPIES),
        _packed(entries["birth"], _BIRTHS),
        _once(_packed(pool.sizes_of(entries["size_code"]), _SIZES), _SIZES),
        _packed(entries["root"], _HASHES),
        _packed(entries["depth"], _DEPTHS),
        contents=_packed(pool.table.contents_of(entries["hash"]), _HASHES) if pool.keeps_contents else b"",
        gone=_packed(gone, _HASHES) if gone is not None else b"",
        life=pool.head.life,
    )


def in_records(parts: Sequence[tuple[Pool, Hashes, Entries]]) -> list[list[PoolEntries]]:
    """Return what changed as the parts of one or more records, none of more than RECORD_ENTRIES entries."""
    records: list[list[PoolEntries]] = [[]]
    room = RECORD_ENTRIES
    for pool, gone, entries in parts:
        # Records are read in their order, so all that left may come in portions before all that came.
        for start in range(0, len(gone) + len(entries), RECORD_ENTRIES):
            left = gone[start : start + RECORD_ENTRIES]
            begin = max(0, start - len(gone))
            came = entries[begin : max(0, start + RECORD_ENTRIES - len(gone))]
            count = len(left) + len(came)
            if count > room:
                records.append([])
                room = RECORD_ENTRIES
            room -= count
            records[-1].append(packed_entries(pool, came, left))
    return records


def unpacked_entries(pool: Pool, entries: PoolEntries) -> BlockColumns:
    """Return the entries of one part of a record, those that left first and without copies."""
    hashes = np.frombuffer(entries.hashes, _HASHES)
    gone = np.frombuffer(entries.gone, _HASHES)
    count = len(hashes)
    sizes = _each(np.frombuffer(entries.block_sizes, _SIZES), count)
    # Where nothing is known of chains, the record has no columns for them. What is joined is copied, too, so
    # that compiled code gets arrays that can be written.
    roots = np.frombuffer(entries.roots or bytes(count * HASH_BYTES), _HASHES)
    depths = np.frombuffer(entries.depths or bytes(count * _DEPTHS.itemsize), _DEPTHS)
    return BlockColumns(
        np.concatenate((gone, hashes)).astype(np.uint64),
        _after(gone, _each(np.frombuffer(entries.copies, _COPIES), count)),
        _after(gone, np.frombuffer(entries.births, _BIRTHS)),
        _after(gone, pool.codes_of(sizes)),
        _after(gone, roots),
        _after(gone, depths),
        _after(gone, np.frombuffer(entries.contents or bytes(count * HASH_BYTES), _HASHES)),
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


def _after(gone: Hashes, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column with zeros before it, one for each block that left."""
    return np.concatenate((np.zeros(len(gone), column.dtype), column))
