"""Who holds how much of a chain: looked up plainly in recounts of sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from pipeline.verify.replica.two_sizes import TwoSizes

TIERS = ("gpu", "cpu", "disk")


class Held(NamedTuple):
    """Tokens on the GPU, with the CPU, and with all below; and blocks in all."""

    gpu: int
    cpu: int
    disk: int
    blocks: int


def tier(medium: str) -> str:
    return medium if medium in ("gpu", "cpu") else "disk"


def size_of(pool: Copies | TwoSizes, block: int) -> int | None:
    """Return the tokens of a block that a pool holds, None if it does not."""
    if isinstance(pool, Copies):
        held = pool.blocks.get(block)
        return None if held is None else held.sizes[0]
    if block in pool.coarse:
        return pool.coarse_size
    return pool.fine_size if block in pool.fine else None


def sizes_announced(pool: Copies | TwoSizes) -> set[int]:
    """Return the sizes by which a group has a say: of its largest blocks, and of its fine ones."""
    if isinstance(pool, TwoSizes):
        return {pool.coarse_size, pool.fine_size}
    return {max(pool.sizes, default=0)}


def held_by_each(
    sources: Iterable[SourceRecount], chain: Sequence[int], windows: dict[tuple[str, int], int] | None = None
) -> dict[tuple[str, int], Held]:
    """Return what each source holds of a chain, by replica and rank, those without any left out.

    `windows`: tokens that the groups of a medium look back; -1: they need the last block only.
    """
    sources = list(sources)
    sizes = [
        max((size_of(pool, one) or 0 for source in sources for pool in _with_a_say(source, chain)), default=0)
        for one in chain
    ]
    largest = max(sizes, default=0)
    sizes = [size or largest for size in sizes]
    found: dict[tuple[str, int], Held] = {}
    for source in sources:
        gpu = _on_gpu(source, chain, largest, windows or {})
        cpu = _further(source, chain, "cpu", gpu)
        disk = _further(source, chain, "disk", cpu)
        if disk:
            found[source.replica, source.dp_rank] = Held(
                sum(sizes[:gpu]), sum(sizes[:cpu]), sum(sizes[:disk]), disk
            )
    return found


def _with_a_say(source: SourceRecount, chain: Sequence[int]) -> Iterable[Copies | TwoSizes]:
    """Return the pools that may say how large a block is: of two granularities those that hold the first."""
    return (
        pool
        for pool in source.pools.values()
        if isinstance(pool, Copies) or size_of(pool, chain[0]) is not None
    )


def _on_gpu(
    source: SourceRecount, chain: Sequence[int], size: int, windows: dict[tuple[str, int], int]
) -> int:
    """Return the longest beginning of which every group has all that its attention looks at."""
    groups = {
        where: [size_of(pool, one) is not None for one in chain]
        for where, pool in source.pools.items()
        if where[0] == "gpu"
        and (size in sizes_announced(pool) or any(size_of(pool, one) is not None for one in chain))
    }

    def usable(length: int) -> bool:
        for where, there in groups.items():
            window = windows.get(where, 0)
            if window == 0:
                needed = length
            elif window == -1:
                needed = 1
            else:
                needed = 1
                while window > 1 and needed * size < window - 1:
                    needed += 1
            if not all(there[max(0, length - needed) : length]):
                return False
        return True

    whole = [there for where, there in groups.items() if not windows.get(where)]
    longest = min([[*there, False].index(False) for there in whole], default=len(chain))
    return max((length for length in range(longest + 1) if groups and usable(length)), default=0)


def _further(source: SourceRecount, chain: Sequence[int], below: str, begin: int) -> int:
    pools = [
        (group, pool)
        for (medium, group), pool in source.pools.items()
        if tier(medium) == below and any(size_of(pool, one) is not None for one in chain)
    ]
    groups = {group for group, _ in pools}
    at = begin
    while (
        groups
        and at < len(chain)
        and all(
            any(size_of(pool, chain[at]) is not None for of, pool in pools if of == group) for group in groups
        )
    ):
        at += 1
    return at
