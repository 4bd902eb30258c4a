"""The CPU tier of an engine: copies of GPU blocks, kept by least recent use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence


class CpuTier:
    """Holds at most `capacity` distinct blocks; 0 turns the tier off."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted = 0
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._blocks)

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._blocks

    def hit_length(self, digests: Sequence[bytes]) -> int:
        """Return how many leading digests are held, and count them as used just now."""
        held = 0
        for digest in digests:
            if digest not in self._blocks:
                break
            self._blocks.move_to_end(digest)
            held += 1
        return held

    def clear(self) -> None:
        """Drop all blocks: the tier was reset."""
        self._blocks.clear()

    def store(self, digests: Iterable[bytes]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Copy blocks in; return those that are new here, and those evicted before to make room."""
        new: dict[bytes, None] = {}
        for digest in digests:
            if digest in self._blocks:
                self._blocks.move_to_end(digest)
            elif len(new) < self.capacity:
                new[digest] = None
        evicted = []
        for _ in range(len(self._blocks) + len(new) - self.capacity):
            evicted.append(self._blocks.popitem(last=False)[0])
        self._blocks.update(new)
        self.evicted += len(evicted)
        return tuple(new), tuple(evicted)
