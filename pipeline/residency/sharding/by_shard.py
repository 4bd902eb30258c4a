"""Changes of residency as parts of records, sharded by block hash."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline.residency.changes import Changes, joined
from pipeline.residency.sharding.distribute import Distributed, distributed, renumbered
from schemas.residency import ResidencyChanges


def by_shard(
    changes: list[Changes], shards: int, *, most: int, receives: bool = False
) -> Iterator[tuple[int, ResidencyChanges]]:
    """Yield (shard, changes), those of a pool and shard in order; empties the list.

    Those of a source that `receives` record which blocks came together.

    No `ResidencyChanges` has more than `most` changes, or more tokens stored than its columns can hold: the
    next one of its pool and shard continues. Their columns are views of bytes, good only to be encoded, as
    otherwise each change would be copied twice.
    """
    for few in joined(changes):
        yield from _parts(few, shards, most, receives)


def _parts(pool: Changes, shards: int, most: int, receives: bool) -> Iterator[tuple[int, ResidencyChanges]]:
    """Yield (shard, changes) of one pool."""
    changes = distributed(pool.rows, shards, most, with_ends=receives)
    columns = changes.columns
    hashes = _bytes_of(_big_endian(columns.hashes))
    kinds = _bytes_of(columns.kinds)
    times = _bytes_of(columns.times.astype("<f8", copy=False))
    sizes = _bytes_of(columns.block_sizes.astype("<u4", copy=False))
    stored = _bytes_of(columns.stored.astype("<u4", copy=False)) if pool.stored_known else b""
    chains = _Chains(changes, pool.loras)
    begun = changes.pieces.tolist()
    ends = [(start, first_fill) for _, start, first_fill, _ in begun[1:]]
    for (shard, start, first_fill, before), (end, fills_end) in zip(
        begun, [*ends, (len(kinds), changes.fills)], strict=True
    ):
        part = ResidencyChanges(
            pool.medium,
            pool.group_idx,
            hashes[8 * start : 8 * end],
            kinds[start:end],
            times[8 * start : 8 * end],
            sizes[4 * start : 4 * end],
            store_only=pool.store_only,
        )
        if stored:
            part.stored_before, part.stored = before, stored[4 * start : 4 * end]
        chains.add_to(part, first_fill, fills_end)
        yield shard, part


class _Chains:
    """Where filled blocks are in their chains."""

    def __init__(self, changes: Distributed, loras: Sequence[str]) -> None:
        columns, fills = changes.columns, changes.fills
        self._known = changes.rooted
        self._roots = _bytes_of(_big_endian(columns.roots[:fills]))
        self._depths = _bytes_of(columns.depths[:fills].astype("<u2", copy=False))
        self._adapters = columns.adapters[:fills]
        self._ends = _bytes_of(_big_endian(columns.ends[:fills]))
        self._loras = loras

    def add_to(self, part: ResidencyChanges, start: int, end: int) -> None:
        """Add those of fills `start` to `end` to a part of a record."""
        if self._known:
            part.roots, part.depths = self._roots[8 * start : 8 * end], self._depths[2 * start : 2 * end]
            if self._loras:
                part.loras, part.lora_codes = _loras(self._adapters[start:end], self._loras)
        if len(self._ends):
            part.ends = self._ends[8 * start : 8 * end]


def _big_endian(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers as big-endian bytes; swaps them in place on a little-endian machine."""
    return numbers.byteswap(inplace=True) if sys.byteorder == "little" else numbers


def _bytes_of(column: npt.NDArray[Any]) -> bytes:
    # msgspec encodes a view as it does bytes.
    return cast(bytes, column.view(np.uint8).data)


def _loras(adapters: npt.NDArray[np.uint16], loras: Sequence[str]) -> tuple[list[str], bytes]:
    """Return the names of the adapters used, and each block's code in them; nothing if no block has one."""
    named, codes = renumbered(adapters, len(loras))
    if not len(named):
        return [], b""
    return [loras[number - 1] for number in named.tolist()], _bytes_of(codes.astype("<u2", copy=False))
