"""Which coarse block covers which fine blocks.

No event says it. Both chains describe the same tokens, so the coarse block that ends at token n * coarse of
its chain covers the fine blocks up to the one that ends at the same token of the fine chain. An engine
announces both chains of a request in the same step: a coarse store is paired with the nearest recent fine
store that contains the boundary, is not covered yet, and continues the fine chain that the coarse parent was
paired with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from pipeline.residency.granularity.depths import Depths
from schemas.pool_checkpoints import CoarseStore, FineStore, GranularState

RECENT = 64
"""Stores of either granularity that wait to be paired."""
RECENT_HASHES = 16_384
"""Blocks that these stores may have together."""

_Store = TypeVar("_Store", FineStore, CoarseStore)


def recent(stores: Sequence[_Store]) -> list[_Store]:
    """Return the newest stores, as many as may wait, oldest first."""
    hashes = 0
    kept: list[_Store] = []
    for store in reversed(stores[-RECENT:]):
        hashes += len(store.hashes)
        if hashes > RECENT_HASHES:
            break
        kept.append(store)
    return kept[::-1]


def chain(state: GranularState, tail: int, length: int) -> list[int] | None:
    """Return `length` fine blocks from `tail` backwards, None if one of them is not known or comes twice."""
    blocks: dict[int, None] = {}
    at: int | None = tail
    while len(blocks) < length:
        fine = state.fine.get(at) if at is not None else None
        if at is None or fine is None or at in blocks:
            return None
        blocks[at] = None
        at = fine.parent
    return list(blocks)


class Pairing:
    """Finds the fine blocks of coarse stores; what it learnt of the chains holds until they change."""

    def __init__(self, state: GranularState) -> None:
        self._state = state
        self._per_block = state.coarse_size // state.fine_size
        self._depths = Depths(state)
        self._ends: dict[int, list[int]] = {}
        """By a fine store's number: the blocks at which a coarse block may end, the last one first."""
        self._unseen: dict[int, Iterator[int]] = {}
        """By a fine store's number: its blocks before those that were looked at."""
        self._promising: list[FineStore] = []
        """Fine stores that may have such a block."""

    def changed(self, block: int) -> None:
        """Forget what rests on a fine block that came, left or got another parent."""
        if block in self._depths.looked_at:
            self._forget()

    def _forget(self) -> None:
        self._depths.forget()
        self._ends.clear()
        self._unseen.clear()

    def begin(self) -> None:
        """Begin pairing after a batch, with the stores that wait now."""
        if self._depths.many:
            self._forget()
        numbers = {store.number for store in self._state.fine_stores}
        for number in self._ends.keys() - numbers:
            del self._ends[number]
            self._unseen.pop(number, None)
        self._promising = [fine for fine in self._state.fine_stores if self._may_have_ends(fine)]

    def tails_of(self, store: CoarseStore) -> list[int]:
        """Return the fine block that ends each block of a coarse store, empty while they are not known."""
        tails = self._known_tails(store)
        if tails:
            return tails
        state = self._state
        parent = state.coarse.get(store.parent) if store.parent is not None else None
        before = parent.tail if parent is not None else None
        nearest = sorted(self._promising, key=lambda fine: (abs(fine.number - store.number), -fine.number))
        for fine_store in nearest:
            tails = self._tails_in(store, fine_store, before)
            if tails:
                return tails
            if not self._may_have_ends(fine_store):
                self._promising.remove(fine_store)
        return []

    def _known_tails(self, store: CoarseStore) -> list[int]:
        """Return the tails known from another copy, or the blocks themselves where they are fine too."""
        state = self._state
        tails = []
        for block in store.hashes:
            coarse = state.coarse.get(block)
            tail = block if block in state.fine else coarse.tail if coarse is not None else None
            if tail is None or chain(state, tail, self._per_block) is None:
                return []
            tails.append(tail)
        return tails

    def _may_have_ends(self, fine_store: FineStore) -> bool:
        return bool(self._ends.get(fine_store.number, True)) or fine_store.number in self._unseen

    def _ends_of(self, fine_store: FineStore) -> Iterator[tuple[int, int]]:
        """Yield the blocks at which a coarse block may end and their depths, the last one first.

        Looks up no depth before it is asked for: a depth that was found stays.
        """
        number = fine_store.number
        if number not in self._ends:
            self._ends[number], self._unseen[number] = [], reversed(fine_store.hashes)
        ends = self._ends[number]
        for candidate in ends:
            depth = self._depths.of(candidate)
            if depth is not None:
                yield candidate, depth
        for candidate in self._unseen.get(number, ()):
            depth = self._depths.of(candidate)
            if depth is not None and depth % self._per_block == 0:
                ends.append(candidate)
                yield candidate, depth
        self._unseen.pop(number, None)

    def _tails_in(self, store: CoarseStore, fine_store: FineStore, before: int | None) -> list[int]:
        """Return the fine block that ends each coarse block, empty if this cannot be the store's chain.

        `before` is the tail of the coarse parent, if it is known.
        """
        state = self._state
        length = len(store.hashes) * self._per_block
        base = self._depths.of(before) if before is not None else None
        for candidate, depth in self._ends_of(fine_store):
            if state.fine[candidate].covers:
                continue
            if store.parent is None and depth != length:
                continue
            if base is not None and depth != base + length:
                continue
            blocks = chain(state, candidate, length)
            if not blocks or (base is not None and state.fine[blocks[-1]].parent != before):
                continue
            return blocks[:: self._per_block][::-1]
        return []
