"""Which fine blocks of a hybrid engine are alive, and which coarse blocks hold their content.

A fine block is announced once and never removed by an event. Once a coarse block covers it, it lives as long
as one of the coarse blocks that cover it; several do when prompts share a prefix shorter than a coarse block.
A fine block that nothing covers yet stays until a clear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class FineBlocks:
    """The fine blocks of one attention group; digests are of 32 bytes."""

    def __init__(self) -> None:
        self._covers: dict[bytes, set[bytes]] = {}
        self._covered: dict[bytes, tuple[bytes, ...]] = {}

    def __len__(self) -> int:
        return len(self._covers)

    def rows(self) -> Iterator[tuple[bytes, frozenset[bytes]]]:
        """Yield each live fine block with the coarse blocks that cover it (none: not covered yet)."""
        for fine, covers in self._covers.items():
            yield fine, frozenset(covers)

    def announce(self, chain: Sequence[bytes], start: int, end: int) -> list[tuple[int, int]]:
        """Make `chain[start:end]` known; return the runs (start, end) that were not known before."""
        runs: list[tuple[int, int]] = []
        for i in range(start, end):
            if chain[i] in self._covers:
                continue
            self._covers[chain[i]] = set()
            if runs and runs[-1][1] == i:
                runs[-1] = (runs[-1][0], i + 1)
            else:
                runs.append((i, i + 1))
        return runs

    def cover(self, coarse: bytes, fines: Sequence[bytes]) -> None:
        """Note that a coarse block with the content of `fines`, all known, became resident."""
        self._covered[coarse] = tuple(fines)
        for fine in fines:
            self._covers[fine].add(coarse)

    def uncover(self, coarse: Iterable[bytes]) -> None:
        """Note that the last copy of each coarse block left, and fine blocks that no other covers with it."""
        for digest in coarse:
            for fine in self._covered.pop(digest, ()):
                covers = self._covers[fine]
                covers.remove(digest)
                if not covers:
                    del self._covers[fine]

    def clear(self) -> None:
        """Drop all blocks: the pool was reset."""
        self._covers.clear()
        self._covered.clear()
