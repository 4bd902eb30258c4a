"""A pool of physical KV blocks like vLLM V1's: lazy eviction, duplicates kept, freed tail first.

A freed block stays cached until it is reused; reuse takes the least recently freed block and evicts what it
held. Equal content may be in several blocks, each cached and evicted by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from connectors.process.errors import DataError

Key = TypeVar("Key", bound=Hashable)


class PoolExhaustedError(DataError):
    """More blocks were asked for than are free."""

    wanted: int
    free: int
    line = "{wanted} blocks wanted, {free} free"


class BlockPool(Generic[Key]):
    """`num_blocks` physical blocks, of which block 0 is the null block; None makes the pool endless."""

    def __init__(self, num_blocks: int | None) -> None:
        if num_blocks is not None and num_blocks < 2:
            raise ValueError(f"num_blocks must be at least 2 (block 0 is the null block), got {num_blocks}")
        self._num_blocks = num_blocks
        self._untouched = 1
        self._free: OrderedDict[int, None] = OrderedDict()
        self._uses: dict[int, int] = {}
        self._keys: dict[int, Key] = {}
        self._blocks: dict[Key, list[int]] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody uses; with an endless pool a number larger than any demand."""
        if self._num_blocks is None:
            return 1 << 62
        return len(self._free) + self._num_blocks - self._untouched

    @property
    def used(self) -> int:
        """Blocks in use by at least one request."""
        return len(self._uses)

    @property
    def physical(self) -> int:
        """Cached entries, copies counted one by one."""
        return len(self._keys)

    @property
    def distinct(self) -> int:
        """Distinct cached keys."""
        return len(self._blocks)

    def copies(self) -> Iterator[tuple[Key, int]]:
        """Yield every cached key with its number of physical copies."""
        for key, blocks in self._blocks.items():
            yield key, len(blocks)

    def __contains__(self, key: Key) -> bool:
        return key in self._blocks

    def lookup(self, key: Key) -> int | None:
        """Return a block that holds `key`, the oldest copy first."""
        blocks = self._blocks.get(key)
        return None if blocks is None else blocks[0]

    def idle(self, blocks: Iterable[int]) -> int:
        """Return how many of these blocks nobody uses."""
        return sum(block not in self._uses for block in blocks)

    def touch(self, blocks: Iterable[int]) -> None:
        """Use cached blocks: they leave the free queue."""
        for block in blocks:
            uses = self._uses.get(block, 0)
            if uses == 0:
                del self._free[block]
            self._uses[block] = uses + 1

    def allocate(self, count: int) -> tuple[list[int], list[Key]]:
        """Allocate `count` blocks; return them and the keys evicted for them, in the order of eviction.

        Blocks never used come first, then the least recently freed. Raises PoolExhaustedError, and allocates
        none, when fewer are free.
        """
        if count > self.free:
            raise PoolExhaustedError(count, self.free)
        blocks, evicted = [], []
        for _ in range(count):
            if self._num_blocks is None or self._untouched < self._num_blocks:
                block = self._untouched
                self._untouched += 1
            else:
                block, _none = self._free.popitem(last=False)
                if block in self._keys:
                    evicted.append(self._forget(block))
            self._uses[block] = 1
            blocks.append(block)
        return blocks, evicted

    def cache(self, block: int, key: Key) -> None:
        """Cache the content of a block in use; equal content in other blocks stays."""
        if block in self._keys or block not in self._uses:
            raise ValueError(f"block {block} is not in use or already cached")
        self._keys[block] = key
        self._blocks.setdefault(key, []).append(block)

    def release(self, blocks: Iterable[int]) -> None:
        """End one use of each block; a request passes its last one first, so that tails are evicted first."""
        for block in blocks:
            uses = self._uses[block] - 1
            if uses:
                self._uses[block] = uses
            else:
                del self._uses[block]
                self._free[block] = None

    def clear(self) -> int | None:
        """Forget all content and return the number of entries dropped; None, and no change, while in use."""
        if self._uses:
            return None
        dropped = len(self._keys)
        self._keys.clear()
        self._blocks.clear()
        return dropped

    def _forget(self, block: int) -> Key:
        key = self._keys.pop(block)
        blocks = self._blocks[key]
        if len(blocks) == 1:
            del self._blocks[key]
        else:
            blocks.remove(block)
        return key
