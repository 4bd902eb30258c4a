"""Changes of residency waiting for the next checkpoint, and their records, sharded by block hash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.residency import ResidencyChanges


class Changes(NamedTuple):
    """m changes of one pool in order of occurrence."""

    medium: str
    group_idx: int
    hashes: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]
    times: npt.NDArray[np.float64]
    block_sizes: npt.NDArray[np.uint32]
    stored: npt.NDArray[np.int64] | None = None
    """Tokens stored in the pool before each change, all copies counted; None where that is not known."""
    store_only: bool = False


def shard_of(hashes: npt.NDArray[np.uint64], shards: int) -> npt.NDArray[np.uint16]:
    """Return the shard of each hash: its high bits, scaled to the number of shards."""
    high = hashes >> np.uint64(32)
    shard: npt.NDArray[np.uint16] = ((high * np.uint64(shards)) >> np.uint64(32)).astype(np.uint16)
    return shard


def by_shard(changes: list[Changes], shards: int) -> Iterator[tuple[int, list[ResidencyChanges]]]:
    """Yield, for each shard touched, its part of the changes; order within a pool is kept."""
    parts: dict[int, list[ResidencyChanges]] = {}
    for pool in _joined(changes):
        shard = shard_of(pool.hashes, shards)
        order = np.argsort(shard, kind="stable")
        numbers, starts = np.unique(shard[order], return_index=True)
        columns = (
            pool.hashes[order].astype(">u8").tobytes(),
            pool.kinds[order].tobytes(),
            pool.times[order].astype("<f8").tobytes(),
            pool.block_sizes[order].astype("<u4").tobytes(),
        )
        stored = pool.stored[order] if pool.stored is not None else None
        ends = [*starts[1:].tolist(), len(order)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            hashes, kinds, times, sizes = (
                column[start * width : end * width]
                for column, width in zip(columns, (8, 1, 8, 4), strict=True)
            )
            part = ResidencyChanges(
                pool.medium, pool.group_idx, hashes, kinds, times, sizes, store_only=pool.store_only
            )
            if stored is not None:
                part.stored_before = int(stored[start])
                part.stored = (stored[start:end] - stored[start]).astype("<u4").tobytes()
            parts.setdefault(number, []).append(part)
    yield from sorted(parts.items())


def _joined(changes: list[Changes]) -> Iterator[Changes]:
    pools: dict[tuple[str, int], list[Changes]] = {}
    for change in changes:
        pools.setdefault((change.medium, change.group_idx), []).append(change)
    for (medium, group_idx), parts in pools.items():
        yield Changes(
            medium,
            group_idx,
            np.concatenate([part.hashes for part in parts]),
            np.concatenate([part.kinds for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.block_sizes for part in parts]),
            _stored(parts),
            parts[0].store_only,
        )


def _stored(parts: list[Changes]) -> npt.NDArray[np.int64] | None:
    known = [part.stored for part in parts if part.stored is not None]
    return np.concatenate(known) if len(known) == len(parts) else None
