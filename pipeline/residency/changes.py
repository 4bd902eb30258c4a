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


def shard_of(hashes: npt.NDArray[np.uint64], shards: int) -> npt.NDArray[np.intp]:
    """Return the shard of each hash: its high bits, scaled to the number of shards."""
    high = hashes >> np.uint64(32)
    shard: npt.NDArray[np.intp] = ((high * np.uint64(shards)) >> np.uint64(32)).astype(np.intp)
    return shard


def by_shard(changes: list[Changes], shards: int) -> Iterator[tuple[int, list[ResidencyChanges]]]:
    """Yield, for each shard touched, its part of the changes; order within a pool is kept."""
    parts: dict[int, list[ResidencyChanges]] = {}
    for pool in _joined(changes):
        shard = shard_of(pool.hashes, shards)
        for number in np.unique(shard).tolist():
            mine = shard == number
            parts.setdefault(number, []).append(
                ResidencyChanges(
                    medium=pool.medium,
                    group_idx=pool.group_idx,
                    hashes=pool.hashes[mine].astype(">u8").tobytes(),
                    kinds=pool.kinds[mine].tobytes(),
                    times=pool.times[mine].astype("<f8").tobytes(),
                    block_sizes=pool.block_sizes[mine].astype("<u4").tobytes(),
                )
            )
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
        )
