"""Engines that announce what no engine has: each kind is a list of batches, every batch a list of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from schemas.events import Cleared, Event, Removed, Stored
from schemas.hashes import HASH_BYTES

Batches = Iterator[list[Event]]
EVENTS_A_BATCH = 500
FINE, COARSE = 64, 2176


class Liar:
    """Makes the batches of one kind; every hash is another one."""

    def __init__(self) -> None:
        self._rng = random.Random(5)

    def hashes(self, count: int = 1) -> bytes:
        return self._rng.randbytes(count * HASH_BYTES)

    def many(self, count: int, made: Callable[[int], Event]) -> Batches:
        """Give as many events, some hundred a batch."""
        for first in range(0, count, EVENTS_A_BATCH):
            yield [made(number) for number in range(first, min(count, first + EVENTS_A_BATCH))]

    def block_sizes(self, count: int = 3000) -> Batches:
        return self.many(count, lambda number: Stored(self.hashes(), 1_000_003 + 2 * number))

    def block_sizes_several(self, count: int = 3000) -> Batches:
        return self.many(count, lambda number: Stored(self.hashes(2), 1_000_003 + 2 * number))

    def groups(self, count: int = 5000) -> Batches:
        return self.many(count, lambda number: Stored(self.hashes(), 16, group_idx=number))

    def groups_removed(self, count: int = 5000) -> Batches:
        return self.many(count, lambda number: Removed(self.hashes(), group_idx=number))

    def media(self, count: int = 5000) -> Batches:
        return self.many(count, lambda number: Stored(self.hashes(), 16, medium=f"m{number:062d}"))

    def adapters(self, count: int = 20_000) -> Batches:
        return self.many(count, lambda number: Stored(self.hashes(), 16, lora=f"{number:0190d}"))

    def long_adapters(self, count: int = 12) -> Batches:
        for number in range(count):
            yield [Stored(self.hashes(), 16, lora=f"{number:01000000d}")]

    def early_stores(self, count: int = 256) -> Batches:
        """First stores of thousands of blocks, and never a removal."""
        for _ in range(count):
            yield [Stored(self.hashes(2000), 16)]

    def mixed_sizes(self, count: int = 30_000) -> Batches:
        """The same blocks again, in another size."""
        blocks = self.hashes(count)
        yield [Removed(self.hashes())]
        for size in (16, 48):
            for first in range(0, count, 1000):
                part = blocks[first * HASH_BYTES : (first + 1000) * HASH_BYTES]
                yield [Stored(part[at : at + HASH_BYTES], size) for at in range(0, len(part), HASH_BYTES)]

    def endless_blocks(self, count: int = 120_000) -> Batches:
        yield [Removed(self.hashes())]
        for _ in range(0, count, 4000):
            yield [Stored(self.hashes(4000), 16)]

    def cleared(self, count: int = 500_000) -> Batches:
        yield from self.endless_blocks(count)
        yield [Cleared()]

    def endless_tokens(self, count: int = 20_000) -> Batches:
        """Blocks of more tokens than 32 bits can add up, on a medium with a long name."""
        return self.many(count, lambda number: Stored(self.hashes(), 2**32 - 1, medium="m" * 1_000))

    def unpaired(self, count: int = 500) -> Batches:
        """Both granularities of chains whose beginning nobody knows, as of an engine that was joined late."""
        before = self.hashes()
        for _ in range(count):
            chain = self.hashes(COARSE // FINE)
            yield [Stored(chain, FINE, parent=before), Stored(self.hashes(), COARSE, parent=self.hashes())]
            before = chain[-HASH_BYTES:]


KINDS = {
    name: getattr(Liar, name)
    for name in (
        "block_sizes",
        "block_sizes_several",
        "groups",
        "groups_removed",
        "media",
        "adapters",
        "long_adapters",
        "early_stores",
        "mixed_sizes",
        "endless_blocks",
        "cleared",
        "endless_tokens",
        "unpaired",
    )
}


def lies(kind: str) -> list[list[Event]]:
    """Return the batches of a kind."""
    return list(KINDS[kind](Liar()))
