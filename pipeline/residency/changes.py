"""Changes of residency waiting for the next checkpoint, and their records, sharded by block hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.residency import FILLED, ResidencyChanges


class Chains(NamedTuple):
    """Where in its chain each of m blocks is; counts for fills only."""

    roots: npt.NDArray[np.uint64]
    """First block of the chain; 0 where that is not known."""
    depths: npt.NDArray[np.uint16]
    """Blocks of the chain up to and including this one."""
    adapters: npt.NDArray[np.uint16]
    """0, or the position of its LoRA in `Changes.loras`, from 1."""

    @classmethod
    def unknown(cls, count: int) -> Chains:
        """Return the chains of blocks of which nothing is known."""
        return cls(np.zeros(count, np.uint64), np.zeros(count, np.uint16), np.zeros(count, np.uint16))

    def at(self, rows: npt.NDArray[np.intp] | slice) -> Chains:
        """Return a copy of some rows."""
        return Chains(self.roots[rows].copy(), self.depths[rows].copy(), self.adapters[rows].copy())


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
    chains: Chains | None = None
    """None where none is known."""
    loras: Sequence[str] = ()


def shard_of(hashes: npt.NDArray[np.uint64], shards: int) -> npt.NDArray[np.uint16]:
    """Return the shard of each hash: its high bits, scaled to the number of shards."""
    high = hashes >> np.uint64(32)
    shard: npt.NDArray[np.uint16] = ((high * np.uint64(shards)) >> np.uint64(32)).astype(np.uint16)
    return shard


def by_shard(
    changes: list[Changes], shards: int, *, most: int
) -> Iterator[tuple[int, list[ResidencyChanges]]]:
    """Yield, for each shard touched, its part of the changes; order within a pool is kept.

    None of the `ResidencyChanges` has more than `most` changes: the next one of its pool goes on.
    """
    parts: dict[int, list[ResidencyChanges]] = {}
    for pool in _joined(changes):
        shard = shard_of(pool.hashes, shards)
        order = np.argsort(shard, kind="stable")
        pieces = [*_pieces(shard[order], most)]
        columns = (
            pool.hashes[order].astype(">u8").tobytes(),
            pool.kinds[order].tobytes(),
            pool.times[order].astype("<f8").tobytes(),
            pool.block_sizes[order].astype("<u4").tobytes(),
        )
        stored = pool.stored[order] if pool.stored is not None else None
        fills = np.flatnonzero(pool.kinds[order] == FILLED)
        chains = _chains_of(pool, order[fills])
        fills_before = np.searchsorted(fills, [*(start for _, start, _ in pieces), len(order)]).tolist()
        for at, (number, start, end) in enumerate(pieces):
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
            if chains is not None:
                chains.add_to(part, fills_before[at], fills_before[at + 1])
            parts.setdefault(number, []).append(part)
    yield from sorted(parts.items())


def _pieces(shard: npt.NDArray[np.uint16], most: int) -> Iterator[tuple[int, int, int]]:
    """Yield (shard, start, end) of the changes of a pool, sorted by shard, `most` of them at once."""
    numbers, starts = np.unique(shard, return_index=True)
    ends = [*starts[1:].tolist(), len(shard)]
    for number, first, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
        for start in range(first, end, most):
            yield number, start, min(start + most, end)


class _PackedChains(NamedTuple):
    """Chains of fills as their columns."""

    roots: bytes
    depths: bytes
    adapters: npt.NDArray[np.uint16] | None
    """None where no block has a LoRA."""
    loras: Sequence[str]

    def add_to(self, part: ResidencyChanges, start: int, end: int) -> None:
        """Put those of fills `start` to `end` into a record."""
        part.roots, part.depths = self.roots[8 * start : 8 * end], self.depths[2 * start : 2 * end]
        if self.adapters is not None:
            adapters = self.adapters[start:end]
            named = np.flatnonzero(np.bincount(adapters, minlength=1)[1:]) + 1
            if len(named):
                part.loras = [self.loras[code - 1] for code in named.tolist()]
                codes = np.zeros(len(self.loras) + 1, "<u2")
                codes[named] = np.arange(1, len(named) + 1)
                part.lora_codes = codes[adapters].tobytes()


def _chains_of(pool: Changes, fills: npt.NDArray[np.intp]) -> _PackedChains | None:
    """Return the chains of these changes, None if none is known."""
    chains = pool.chains
    if chains is None:
        return None
    roots = chains.roots[fills]
    if not roots.any():
        return None
    adapters = chains.adapters[fills] if pool.loras else None
    return _PackedChains(
        roots.astype(">u8").tobytes(), chains.depths[fills].astype("<u2").tobytes(), adapters, pool.loras
    )


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
            _chains(parts),
            next((part.loras for part in parts if part.loras), ()),
        )


def _stored(parts: list[Changes]) -> npt.NDArray[np.int64] | None:
    known = [part.stored for part in parts if part.stored is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _chains(parts: list[Changes]) -> Chains | None:
    if all(part.chains is None for part in parts):
        return None
    each = [Chains.unknown(len(part.hashes)) if part.chains is None else part.chains for part in parts]
    return Chains(
        np.concatenate([chains.roots for chains in each]),
        np.concatenate([chains.depths for chains in each]),
        np.concatenate([chains.adapters for chains in each]),
    )
